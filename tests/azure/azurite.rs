//! Azurite, started by whoever needs it first and stopped by whoever needs it last.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ankusa_node::blob::azure::{AzureAuth, AzureSpec};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::{Client, Method, Response};
use tempfile::TempDir;

use super::access::{ACCOUNT, FAR_OFF, account_sas, container_sas, token};
use super::with_small_parts;

/// What installs it, and which version.
const SCRIPT: &str = include_str!("../../scripts/azurite.sh");

const PATIENCE: Duration = Duration::from_secs(120);

static SHARED: Mutex<Weak<Azurite>> = Mutex::new(Weak::new());

/// A server of our own, with everything in memory.
pub struct Azurite {
    server: Child,
    /// The account's URL.
    pub endpoint: String,
    /// What it says, and its certificates.
    pub folder: TempDir,
    containers: AtomicU64,
}

impl Azurite {
    /// One that speaks plain HTTP.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(azurite) = shared.upgrade() {
            return azurite;
        }
        let azurite = Arc::new(Self::start(tempfile::tempdir().unwrap(), &[]));
        *shared = Arc::downgrade(&azurite);
        azurite
    }

    /// One that speaks TLS, and takes tokens. Its authority is `authority.pem` in its folder.
    pub fn with_tokens() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = authority.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("authority.pem"), pem).unwrap();
        let issuer = Issuer::new(authority, key);
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let pem = own.signed_by(&key, &issuer).unwrap().pem();
        let (certificate_path, key_path) =
            (folder.path().join("own.pem"), folder.path().join("own.key"));
        std::fs::write(&certificate_path, pem).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        let (certificate, key) = (certificate_path.to_str().unwrap(), key_path.to_str().unwrap());
        Self::start(folder, &["--oauth", "basic", "--cert", certificate, "--key", key])
    }

    fn start(folder: TempDir, more: &[&str]) -> Self {
        let said = folder.path().join("said");
        let output = File::create(&said).unwrap();
        let server = Command::new("node")
            .arg(program())
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0"])
            .args(["--inMemoryPersistence", "--disableTelemetry", "--silent"])
            .args(more)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(output.try_clone().unwrap())
            .stdout(output)
            .spawn()
            .unwrap_or_else(|error| panic!("node: {error}: run scripts/setup.sh --test"));
        let (endpoint, containers) = (String::new(), AtomicU64::new(0));
        let mut azurite = Self { server, endpoint, folder, containers };
        let since = Instant::now();
        loop {
            let text = std::fs::read_to_string(&said).unwrap();
            let listens = text.lines().find_map(|line| line.split_once("successfully listens on "));
            if let Some((_, origin)) = listens {
                azurite.endpoint = format!("{}/{ACCOUNT}", origin.trim());
                return azurite;
            }
            let ended = azurite.server.try_wait().unwrap();
            assert!(ended.is_none() && since.elapsed() < PATIENCE, "azurite: {ended:?} {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A new, empty container.
    pub async fn container(&self) -> String {
        let number = self.containers.fetch_add(1, Ordering::SeqCst);
        let container = format!("container-{number}");
        let target = format!("{container}?restype=container&{}", account_sas());
        let made = self.ask(Method::PUT, &target, &[], "").await;
        assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
        container
    }

    /// A section for a container, with a signature that may do all that is needed.
    pub fn spec(&self, container: &str) -> AzureSpec {
        with_small_parts(AzureSpec {
            container: container.to_owned(),
            endpoint: Some(self.endpoint.clone()),
            auth: AzureAuth::Sas,
            sas_token: Some(container_sas(container, "racwdl", FAR_OFF)),
            ..AzureSpec::default()
        })
    }

    /// A request as it is, below the account.
    pub async fn ask(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Response {
        let url = format!("{}/{target}", self.endpoint);
        let mut request = self.client().request(method, url).header("x-ms-version", "2024-11-04");
        if self.endpoint.starts_with("https") {
            request = request.bearer_auth(token("https://storage.azure.com"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).send().await.unwrap()
    }

    /// The authorities of its certificate, in PEM; none of one without TLS.
    pub fn authority(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("authority.pem")).unwrap_or_default()
    }

    fn client(&self) -> Client {
        let roots = reqwest::Certificate::from_pem_bundle(&self.authority()).unwrap();
        Client::builder().no_proxy().tls_certs_only(roots).build().unwrap()
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn program() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("ANKUSA_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("ankusa")))
        .or_else(|| Some(variable("HOME")?.join(".cache/ankusa")))
        .unwrap();
    let version = SCRIPT.lines().find_map(|line| line.strip_prefix("version=")).unwrap();
    let program =
        cache.join(format!("azurite-{version}/node_modules/azurite/dist/src/blob/main.js"));
    assert!(program.is_file(), "no {}: run scripts/azurite.sh", program.display());
    program
}
