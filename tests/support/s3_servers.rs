//! Real servers that speak S3, started once by a test program and ended with it, each with a folder of its own.
// Every test program uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::s3::S3Spec;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;

pub const ACCESS_KEY_ID: &str = "AKIDEXAMPLE";
pub const SECRET_ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
pub const REGION: &str = "us-east-1";

/// Longer than any of them takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct Server {
    pub port: u16,
    // Its standard input is what keeps the server running: the system closes it, however the tests end.
    _child: Child,
}

/// SeaweedFS, with encryption at rest and one identity.
pub fn seaweedfs() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let [port, ports @ ..] = free_ports::<10>();
        let dir = folder();
        let identities = serde_json::json!({"identities": [{
            "name": "node",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        fs::write(dir.join("identities.json"), identities.to_string()).unwrap();
        let mut args = vec![
            "server".to_owned(),
            format!("-dir={}", dir.display()),
            "-ip=127.0.0.1".to_owned(),
            "-ip.bind=127.0.0.1".to_owned(),
            "-master.telemetry=false".to_owned(),
            // Files are as large as they need to be: the space of eight gigabytes is not asked for beforehand.
            "-master.volumePreallocate=false".to_owned(),
            "-master.volumeSizeLimitMB=64".to_owned(),
            "-volume.max=1000".to_owned(),
            "-volume.minFreeSpacePercent=0".to_owned(),
            "-s3".to_owned(),
            "-s3.autoCreateBucket=false".to_owned(),
            format!("-s3.config={}", dir.join("identities.json").display()),
            format!("-s3.port={port}"),
        ];
        let named = [
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
        args.extend(named.iter().zip(ports).map(|(name, port)| format!("-{name}={port}")));
        let sse =
            ("WEED_S3_SSE_KEY", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
        started("s3-servers/bin/weed", &args, &[sse], &dir, port)
    })
}

/// s3s-fs, objects of which are files.
pub fn s3s() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let [port] = free_ports();
        let dir = folder();
        let root = dir.join("buckets");
        fs::create_dir(&root).unwrap();
        let args = [
            "--host=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--access-key={ACCESS_KEY_ID}"),
            format!("--secret-key={SECRET_ACCESS_KEY}"),
            root.display().to_string(),
        ];
        started("s3s-fs/bin/s3s-fs", &args, &[], &dir, port)
    })
}

/// moto, which looks at no signature: for STS and an instance's metadata.
pub fn moto() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let [port] = free_ports();
        let dir = folder();
        let args = ["-H".to_owned(), "127.0.0.1".to_owned(), "-p".to_owned(), port.to_string()];
        started("s3-servers/bin/moto_server", &args, &[], &dir, port)
    })
}

impl Server {
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A store of this server, in a bucket that is made if there is none.
    pub async fn spec(&self, bucket: &str) -> S3Spec {
        let made = raw(self.port, "PUT", &format!("/{bucket}"), &[], b"").await;
        assert!(matches!(made.status, 200 | 409), "{}", made.body);
        spec(self.port, bucket)
    }
}

/// A store at a port of this machine, with the keys all servers here know.
pub fn spec(port: u16, bucket: &str) -> S3Spec {
    S3Spec {
        bucket: bucket.to_owned(),
        region: REGION.to_owned(),
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        access_key_id: Some(ACCESS_KEY_ID.to_owned()),
        secret_access_key: Some(SECRET_ACCESS_KEY.to_owned()),
        transport: TransportOptions {
            timeout_ms: 60_000,
            breaker_failures: 0,
            ..TransportOptions::default()
        },
        ..S3Spec::default()
    }
}

/// An answer to a request that no adapter made.
pub struct Raw {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: String,
}

/// Asks as anybody could: signed right, for these headers and this body.
pub async fn raw(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &'static [u8],
) -> Raw {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let identity = Credentials::new(ACCESS_KEY_ID, SECRET_ACCESS_KEY, None, None, "test").into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(REGION)
        .name("s3")
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let url = format!("http://127.0.0.1:{port}{path}");
    let signable =
        SignableRequest::new(method, &url, headers.iter().copied(), SignableBody::Bytes(body))
            .unwrap();
    let (instructions, _) = sign(signable, &params).unwrap().into_parts();
    let method = http::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = reqwest::Client::new().request(method, &url).body(body);
    for (name, value) in headers.iter().copied().chain(instructions.headers()) {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Raw { status, headers, body: answer.text().await.unwrap() }
}

fn folder() -> PathBuf {
    tempfile::tempdir().unwrap().keep()
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Where `scripts/s3-servers.sh` puts what it installs.
fn installed(program: &str) -> PathBuf {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("ANKUSA_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("ankusa")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/ankusa")));
    let path = cache.expect("there is a home").join(program);
    assert!(path.exists(), "{} is missing: run scripts/setup.sh --test", path.display());
    path
}

/// Waits at the other end of the pipe for the tests to end, however they do, then ends the server.
const KEEPER: &str = r#"trap '' INT; dir=$1; shift; "$@" >"$dir/log" 2>&1 </dev/null & cat >/dev/null; kill -9 $!; wait; rm -rf "$dir""#;

fn started(program: &str, args: &[String], env: &[(&str, &str)], dir: &Path, port: u16) -> Server {
    let mut child = Command::new("sh")
        .args(["-c", KEEPER, "keeper"])
        .arg(dir)
        .arg(installed(program))
        .args(args)
        .envs(env.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while !answers(port) {
        if since.elapsed() > PATIENCE {
            let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
            drop(child.stdin.take());
            panic!("{program} did not start:\n{log}");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Server { port, _child: child }
}

/// Whether it answers HTTP with anything but that it is not ready.
fn answers(port: u16) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let mut answer = [0; 12];
    asked.is_ok() && stream.read_exact(&mut answer).is_ok() && &answer[9..10] != b"5"
}
