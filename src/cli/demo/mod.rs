//! `ankusa demo`: a whole node with nothing to install: an embedded configuration, a worker on loopback that prints what
//! is delivered to it, and what to try first.

mod worker;

use std::net::SocketAddr;
use std::process::ExitCode;

use super::{complain, print};
use crate::config::{Config, ConfigErrors, EXIT_CONFIG, Environment};
use crate::{node, telemetry};

/// Signs the hooks of the source `github`. Printed, so it protects nothing: the node listens on loopback.
const GITHUB_SECRET: &str = "only-a-demo";

pub(super) fn run() -> ExitCode {
    let worker = match worker::start() {
        Ok(address) => address,
        Err(error) => {
            complain(format_args!("cannot start the demo's worker: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let config = match config(worker, &Environment::of_the_process()) {
        Ok(config) => config,
        Err(errors) => {
            complain(errors);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    telemetry::logs::start(&config.log);
    // Said before the node starts: it only returns once it has stopped.
    let _ = print(&what_to_try(&config));
    node::start(config)
}

/// One node on this machine, and two sources whose hooks go to the worker.
fn config(worker: SocketAddr, environment: &Environment) -> Result<Config, ConfigErrors> {
    let sinks = format!(
        "[{{type: http, url: \"http://{worker}/hooks\", secret: whsec_b25seSBhIGRlbW8sIG9ubHkgYSBkZW1v}}]"
    );
    let text = format!(
        "http: {{ip: 127.0.0.1}}\n\
         egress: {{allow_http: true, allow: [127.0.0.1]}}\n\
         sources:\n  \
           demo: {{verify: {{type: none}}, dedupe: {{header: webhook-id}}, sinks: {sinks}}}\n  \
           github: {{verify: {{type: github, secret: {GITHUB_SECRET}}}, dedupe: github, sinks: {sinks}}}\n"
    );
    Config::parse(&text, "the demo's configuration", environment)
}

fn what_to_try(config: &Config) -> String {
    let (hooks, admin) = (config.http.port, config.admin.port);
    let socket = config.control_socket();
    format!(
        r#"Ankusa demo: hooks on port {hooks}, admin on port {admin}, data in {data}.
A worker inside this process prints every hook that is delivered to it.

In another terminal, send a hook:

  curl -i http://127.0.0.1:{hooks}/webhooks/demo -d '{{"hello":"world"}}'

Send one signed as GitHub signs:

  body='{{"action":"opened"}}'; curl -i http://127.0.0.1:{hooks}/webhooks/github -d "$body" \
    -H "x-hub-signature-256: sha256=$(printf %s "$body" | openssl dgst -sha256 -hmac {GITHUB_SECRET} | sed 's/.* //')"

And one that GitHub did not sign, which is answered 401:

  curl -i http://127.0.0.1:{hooks}/webhooks/github -d "$body" -H "x-hub-signature-256: sha256=00"

Then look inside, or kill this process with SIGKILL in the middle of a load and start it again:

  ankusa ctl --socket {socket} tree
  ankusa ctl --socket {socket} hooks
  curl http://127.0.0.1:{admin}/metrics

"#,
        data = config.instance_dir().display(),
        socket = socket.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_configuration_is_valid_and_stays_on_loopback() {
        let worker = SocketAddr::from(([127, 0, 0, 1], 9));
        let config = config(worker, &Environment::default()).unwrap();
        assert!(config.http.ip.is_loopback() && config.admin.ip.is_loopback());
        assert_eq!(config.sources.keys().collect::<Vec<_>>(), ["demo", "github"]);
        assert_eq!(config.warnings(), Vec::<String>::new());
    }

    #[test]
    fn what_to_try_names_the_ports_and_the_socket_in_force() {
        let moved = [("ANKUSA_HTTP_PORT", "5000"), ("ANKUSA_DATA_DIR", "/tmp/d")];
        let worker = SocketAddr::from(([127, 0, 0, 1], 9));
        let text = what_to_try(&config(worker, &moved.into_iter().collect()).unwrap());
        assert!(
            text.contains(
                "curl -i http://127.0.0.1:5000/webhooks/demo -d '{\"hello\":\"world\"}'\n"
            )
        );
        assert!(text.contains("ankusa ctl --socket /tmp/d/default/control.sock tree\n"));
        assert!(text.contains("-hmac only-a-demo |"));
    }
}
