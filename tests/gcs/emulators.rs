//! Emulators of others, started for one test on a port of their own and stopped with it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{BUCKET, PATIENCE};

/// A server that ends when it is dropped.
pub struct Emulator {
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Emulator {
    /// fake-gcs-server: it knows `ifGenerationMatch` on multipart uploads and pages; it looks at no digest, and takes the
    /// question how far an upload came for its end.
    pub async fn fake_gcs_server() -> Self {
        let emulator = Self::spawn("fake-gcs-server", |command, port, _folder| {
            let url = format!("http://127.0.0.1:{port}");
            command
                .args(["-scheme", "http", "-backend", "memory", "-log-level", "error"])
                .args(["-host", "127.0.0.1", "-port", &port.to_string()])
                // Of both hosts it is known by, one for each API.
                .args(["-external-url", &url, "-public-host", &format!("127.0.0.1:{port}")]);
        });
        emulator.until_it_answers("/storage/v1/b?project=p").await;
        let create = reqwest::Client::new()
            .post(format!("{}/storage/v1/b?project=p", emulator.url()))
            .header("content-type", "application/json")
            .body(serde_json::json!({"name": BUCKET}).to_string());
        assert_eq!(create.send().await.unwrap().status(), 200);
        emulator
    }

    /// gcp-storage-emulator: it looks at digests and knows how far uploads came; it knows no preconditions and no pages.
    pub async fn gcp_storage_emulator() -> Self {
        let emulator = Self::spawn("gcp-storage-emulator", |command, port, folder| {
            command.args(["--data-dir", folder, "start", "--host", "127.0.0.1", "--port"]).args([
                &port.to_string(),
                "--in-memory",
                "--default-bucket",
                BUCKET,
                "--quiet",
            ]);
        });
        emulator.until_it_answers("/").await;
        emulator
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn spawn(name: &str, arguments: impl FnOnce(&mut Command, u16, &str)) -> Self {
        let program = program(name);
        assert!(
            program.exists(),
            "{} is not there: scripts/gcs-servers.sh installs it",
            program.display()
        );
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        arguments(&mut command, port, folder.path().to_str().unwrap());
        command.current_dir(folder.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { port, child, _folder: folder }
    }

    async fn until_it_answers(&self, path: &str) {
        let since = Instant::now();
        let url = format!("{}{path}", self.url());
        while !reqwest::get(&url).await.is_ok_and(|answer| answer.status().is_success()) {
            assert!(since.elapsed() < PATIENCE, "{url} does not answer");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Where `scripts/gcs-servers.sh` puts it.
fn program(name: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = variable("ANKUSA_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache");
        caches.unwrap_or_else(home).join("ankusa")
    });
    cache.join("gcs-servers/bin").join(name)
}
