//! An answer that ends a request early. In a box: handlers pass it up, and it is rare.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::query::InvalidFilter;
use super::routes::refuse;

#[derive(Debug)]
pub(super) struct Refusal(Box<Response>);

impl Refusal {
    pub(super) fn new(status: StatusCode, body: &Value) -> Self {
        refuse(status, body).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<Response> for Refusal {
    fn from(response: Response) -> Self {
        Self(Box::new(response))
    }
}

impl From<InvalidFilter> for Refusal {
    fn from(invalid: InvalidFilter) -> Self {
        Response::from(invalid).into()
    }
}
