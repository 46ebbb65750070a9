//! Connections to one endpoint: bounded, and a wait for one is too ("A connection pool per endpoint").

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ankusa_actors::ports::BlobError;
use reqwest::redirect::Policy;
use reqwest::tls::Version;
use reqwest::{Certificate, Client, retry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::options::TransportOptions;
use super::spec_error::BlobSpecError;

/// How long an idle connection is kept. Object stores close theirs after some seconds more.
const IDLE: Duration = Duration::from_secs(4);

/// How long one may take to come about, whatever time an attempt has in all.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// The connections of one endpoint.
pub struct Pool {
    client: Client,
    free: Arc<Semaphore>,
    checkout: Duration,
    /// Of the store that asked first.
    options: TransportOptions,
}

/// The pools of a node: one an endpoint, whatever stores talk to it.
#[derive(Default)]
pub struct Pools {
    by_endpoint: Mutex<BTreeMap<String, Arc<Pool>>>,
}

impl Pools {
    /// That of an endpoint.
    ///
    /// # Errors
    /// Why there can be none: `cacertfile` cannot be read, or holds no certificate; or what is said of the connections,
    /// which are shared, is not what a store says that talks to the endpoint already.
    pub fn of(
        &self,
        endpoint: &str,
        options: &TransportOptions,
    ) -> Result<Arc<Pool>, BlobSpecError> {
        let mut by_endpoint = self.by_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = by_endpoint.get(endpoint) {
            let known = &pool.options;
            for (key, is_same) in [
                ("pool_size", known.pool_size == options.pool_size),
                ("pool_count", known.pool_count == options.pool_count),
                ("pool_timeout", known.pool_timeout == options.pool_timeout),
                // With connections it is shared whom they trust.
                ("cacertfile", known.cacertfile == options.cacertfile),
            ] {
                if !is_same {
                    let text = format!("must be the same for every store at {endpoint}");
                    return Err(BlobSpecError::new(key, text));
                }
            }
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Pool::new(endpoint, options)?);
        by_endpoint.insert(endpoint.to_owned(), Arc::clone(&pool));
        Ok(pool)
    }
}

impl Pool {
    fn new(endpoint: &str, options: &TransportOptions) -> Result<Self, BlobSpecError> {
        let wrong = |text: String| BlobSpecError::new("cacertfile", text);
        let connections = options.pool_size.saturating_mul(options.pool_count);
        let connections = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS);
        let mut client = Client::builder()
            // What is configured is the endpoint; a store that sends elsewhere is another store.
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            // Trying again is the operation's, which counts, waits and signs.
            .retry(retry::never())
            .http1_only()
            .tcp_nodelay(true)
            .min_tls_version(Version::TLS_1_2)
            .pool_max_idle_per_host(connections)
            .pool_idle_timeout(IDLE)
            .connect_timeout(CONNECTS_WITHIN);
        if let Some(path) = &options.cacertfile {
            let pem = std::fs::read(path)
                .map_err(|error| wrong(format!("{}: {error}", path.display())))?;
            let roots = Certificate::from_pem_bundle(&pem)
                .map_err(|error| wrong(format!("{}: {error}", path.display())))?;
            if roots.is_empty() {
                return Err(wrong(format!("{}: no certificate in it", path.display())));
            }
            client = client.tls_certs_only(roots);
        } else if endpoint.starts_with("http://") {
            // A machine without root certificates can talk to a store that needs none.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| wrong(format!("{endpoint}: {error}")))?;
        let free = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
        let (checkout, options) = (Duration::from_millis(options.pool_timeout), options.clone());
        Ok(Self { client, free, checkout, options })
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for a connection, as long as `pool_timeout` and not past `deadline`.
    ///
    /// # Errors
    /// `deadline`, or `transport` when all are taken: a failure of this node, not of the store.
    pub(super) async fn checkout(
        &self,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, BlobError> {
        let until = (Instant::now() + self.checkout).min(deadline);
        match timeout_at(until, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Err(_) if until == deadline => Err(BlobError::Deadline),
            Ok(Err(_)) | Err(_) => {
                let waited_ms = self.checkout.as_millis();
                Err(BlobError::Transport(format!("no connection was free for {waited_ms} ms")))
            }
        }
    }
}
