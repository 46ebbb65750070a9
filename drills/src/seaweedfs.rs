//! SeaweedFS: a real S3 server, started for a drill or a bench and ended with it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::drill::{CannotInject, OrCannot};
use crate::ports;

pub const ACCESS_KEY_ID: &str = "AKIDEXAMPLE";
pub const SECRET_ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
pub const REGION: &str = "us-east-1";
/// The one bucket it has.
pub const BUCKET: &str = "drills";

/// Longer than it takes to start.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Its ports beside that of S3.
const PORTS: [&str; 9] = [
    "s3.port.grpc",
    "s3.port.iceberg",
    "s3.port.lance",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
];

/// The server. It is killed when this is dropped.
pub struct SeaweedFs {
    pub port: u16,
    child: Child,
}

impl SeaweedFs {
    /// Starts it on `directory`, and waits until it has the bucket.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub async fn start(directory: &Path) -> Result<Self, CannotInject> {
        fs::create_dir_all(directory).or_cannot("make the server's directory")?;
        let identities = serde_json::json!({"identities": [{
            "name": "drills",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        let config = directory.join("identities.json");
        fs::write(&config, identities.to_string()).or_cannot("write the server's identities")?;
        let [port, others @ ..] = ports::free::<10>()?;
        let mut command = Command::new(program()?);
        command
            .arg("server")
            .arg(format!("-dir={}", directory.display()))
            .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-master.telemetry=false"])
            // Files are as large as they need to be: the space of eight gigabytes is not asked for beforehand.
            .args(["-master.volumePreallocate=false", "-master.volumeSizeLimitMB=1024"])
            .args(["-volume.max=64", "-volume.minFreeSpacePercent=0"])
            .arg(format!("-s3.config={}", config.display()))
            .arg(format!("-s3.port={port}"));
        for (name, port) in PORTS.iter().zip(others) {
            command.arg(format!("-{name}={port}"));
        }
        let log = fs::File::create(directory.join("log")).or_cannot("write the server's log")?;
        let child = command
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .or_cannot("start SeaweedFS")?;
        let server = Self { port, child };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if began.elapsed() > PATIENCE {
                return Err(CannotInject(format!("SeaweedFS is silent after {PATIENCE:?}")));
            }
            sleep(LOOK_AGAIN).await;
        }
        server.make_bucket(directory).await?;
        Ok(server)
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Through its own shell: making buckets is no business of a store.
    async fn make_bucket(&self, directory: &Path) -> Result<(), CannotInject> {
        let master = self.master(directory)?;
        let began = Instant::now();
        loop {
            let mut shell = tokio::process::Command::new(program()?);
            shell
                .arg("shell")
                .arg(format!("-master={master}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = shell.spawn().or_cannot("start the server's shell")?;
            if let Some(mut input) = child.stdin.take() {
                use tokio::io::AsyncWriteExt as _;
                let line = format!("s3.bucket.create -name {BUCKET}\nexit\n");
                let _ = input.write_all(line.as_bytes()).await;
            }
            let ended = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
            if ended.is_ok_and(|status| status.is_ok_and(|status| status.success())) {
                return Ok(());
            }
            let _ = child.start_kill();
            if began.elapsed() > PATIENCE {
                return Err(CannotInject("SeaweedFS makes no bucket".to_owned()));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// The address of its master, as its own arguments have it.
    fn master(&self, directory: &Path) -> Result<String, CannotInject> {
        let arguments = fs::read(format!("/proc/{}/cmdline", self.child.id()));
        let arguments = arguments.or_cannot(format_args!("ask for {}", directory.display()))?;
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        let of = |name: &str| {
            let wanted = format!("-{name}=");
            arguments.split('\0').find_map(|argument| argument.strip_prefix(&wanted))
        };
        match (of("master.port"), of("master.port.grpc")) {
            (Some(port), Some(grpc)) => Ok(format!("127.0.0.1:{port}.{grpc}")),
            _ => Err(CannotInject("SeaweedFS has no master".to_owned())),
        }
    }
}

impl Drop for SeaweedFs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `scripts/s3-servers.sh` puts it.
///
/// # Errors
/// It is not there.
pub fn program() -> Result<PathBuf, CannotInject> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = set("ANKUSA_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("ankusa")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/ankusa")));
    let program = cache.unwrap_or_default().join("s3-servers/bin/weed");
    if program.exists() {
        Ok(program)
    } else {
        Err(CannotInject(format!("{} is missing: run scripts/setup.sh --test", program.display())))
    }
}
