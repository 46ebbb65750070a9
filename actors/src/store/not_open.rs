//! Why the store is not open, whoever said so: the engine, or what was looked at before anybody was let in.

use ractor::ActorProcessingErr;

use super::BootError;
use crate::model::failure::FailureClass;
use crate::ports::OpenError;

/// Why the database is not open.
pub(super) enum NotOpen {
    Engine(OpenError),
    Boot(BootError),
}

impl NotOpen {
    pub(super) fn class(&self) -> FailureClass {
        match self {
            Self::Engine(error) => error.class,
            Self::Boot(BootError::Kv(error)) => error.class,
            Self::Boot(BootError::FamilyLost(..)) => FailureClass::Corruption,
            Self::Boot(BootError::Newer(_) | BootError::Older(_) | BootError::Unstamped) => {
                FailureClass::Other
            }
        }
    }
}

impl From<NotOpen> for ActorProcessingErr {
    fn from(why: NotOpen) -> Self {
        match why {
            NotOpen::Engine(error) => error.into(),
            NotOpen::Boot(error) => error.into(),
        }
    }
}
