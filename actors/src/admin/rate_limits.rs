//! `/v1/rate-limits` and `/v1/tenants/{tenant}/rate-limit`: what tenants may send, and what an operator makes of it.

use serde_json::{Map, Value, json};

use super::{Admin, AdminError};
use crate::edge::{LimitSource, MAX_OVERRIDES, SetError};
use crate::model::rate_limit::{RateLimit, TenantLimit};

impl From<SetError> for AdminError {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Store(error) => error.into(),
            SetError::TooMany => Self::TooManyRateLimits(MAX_OVERRIDES),
        }
    }
}

impl Admin {
    /// The default, and every tenant that has a limit of its own.
    ///
    /// # Errors
    /// `role_not_enabled`.
    pub fn rate_limits(&self) -> Result<Value, AdminError> {
        self.must_be_edge()?;
        let limits = &self.handles.ingest.limits;
        let tenants = limits.named().into_iter().map(|tenant| self.told(&tenant));
        let default = limits.of_others().map(|limit| Value::Object(fields(&limit)));
        Ok(json!({"default": default, "tenants": tenants.collect::<Vec<_>>()}))
    }

    /// What one tenant may send, and where that is from.
    ///
    /// # Errors
    /// `role_not_enabled`.
    pub fn rate_limit(&self, tenant: &str) -> Result<Value, AdminError> {
        self.must_be_edge()?;
        Ok(self.told(tenant))
    }

    /// Gives a tenant a limit, at once and for good; its bucket is full then.
    ///
    /// # Errors
    /// `role_not_enabled`, `invalid_rate_limit`, `too_many_rate_limits`; and where the store fails, it may be in force
    /// later.
    pub async fn set_rate_limit(
        &self,
        tenant: &str,
        limit: TenantLimit,
    ) -> Result<Value, AdminError> {
        self.must_be_edge()?;
        let limits = &self.handles.ingest.limits;
        if limit.is_none() {
            let message =
                "must have rate and burst, bytes_rate and bytes_burst, or overload_share_percent";
            return Err(AdminError::InvalidRateLimit(message.to_owned()));
        }
        let checked = limit.limits(limits.max_body_bytes());
        checked.map_err(|error| AdminError::InvalidRateLimit(error.to_string()))?;
        limits.set(tenant, Some(limit)).await?;
        Ok(self.told(tenant))
    }

    /// Takes away what an operator has set: the configuration counts again, and the bucket is full.
    ///
    /// # Errors
    /// `role_not_enabled`, `rate_limit_not_found`; or the store's.
    pub async fn delete_rate_limit(&self, tenant: &str) -> Result<(), AdminError> {
        self.must_be_edge()?;
        let had_one = self.handles.ingest.limits.set(tenant, None).await?;
        if had_one { Ok(()) } else { Err(AdminError::RateLimitNotFound) }
    }

    fn told(&self, tenant: &str) -> Value {
        let (TenantLimit { limit, overload_share_percent }, source) =
            self.handles.ingest.limits.of_tenant(tenant);
        let mut told = Map::new();
        told.insert("tenant".to_owned(), json!(tenant));
        told.extend(fields(&limit));
        if let Some(percent) = overload_share_percent {
            told.insert("overload_share_percent".to_owned(), json!(percent));
        }
        told.insert("source".to_owned(), json!(LimitSource::as_str(source)));
        Value::Object(told)
    }
}

/// `rate` and `burst` always, null for no limit; those of bytes where there are any.
fn fields(limit: &RateLimit) -> Map<String, Value> {
    let RateLimit { rate, burst, bytes_rate, bytes_burst } = limit;
    let mut fields = Map::new();
    fields.insert("rate".to_owned(), json!(rate));
    fields.insert("burst".to_owned(), json!(burst));
    if let (Some(rate), Some(burst)) = (bytes_rate, bytes_burst) {
        fields.insert("bytes_rate".to_owned(), json!(rate));
        fields.insert("bytes_burst".to_owned(), json!(burst));
    }
    fields
}
