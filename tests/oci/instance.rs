//! A compute instance: its metadata server, and the endpoint that gives it session tokens.

use std::io::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ankusa_actors::ports::Clock;
use ankusa_node::blob::oci::{OciAuth, OciSpec};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_RSA_SHA256, PublicKeyData};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use super::objects::Objects;
use super::verify::{Verifier, header};
use super::{Answers, Listening, Scene, TENANCY, dated, field, refused};

/// How long a token counts, in seconds.
pub const TOKEN_S: u64 = 1_200;

pub struct Instance {
    host: String,
    objects: Arc<Objects>,
    leaf: Certified,
    intermediate: Certified,
    /// Tokens given out.
    pub exchanges: AtomicU64,
    /// Requests for one that were refused, and why.
    pub refused: Mutex<Vec<&'static str>>,
    /// Whether tokens are worth anything to Object Storage.
    pub tokens_count: Mutex<bool>,
    /// Answered instead of something of the metadata.
    pub instead: Mutex<Option<(&'static str, u16, String)>>,
    /// Answered instead of a token.
    pub no_token: Mutex<Option<(u16, String)>>,
}

struct Certified {
    key: KeyPair,
    certificate: String,
    der: Vec<u8>,
}

impl Certified {
    fn new(units: &[&str]) -> Self {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, "ocid1.instance.oc1.phx.aaaainstance");
        // One attribute under two names: a name of this library has each of them once.
        let kinds = [DnType::OrganizationalUnitName, DnType::CustomDnType(vec![2, 5, 4, 11])];
        for (kind, unit) in kinds.into_iter().zip(units) {
            name.push(kind, *unit);
        }
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate: certificate.pem(), der: certificate.der().to_vec(), key }
    }
}

/// The instance, and the spec of a store of `scene` that signs as it does.
pub async fn instance(scene: &Scene) -> (Arc<Instance>, Listening, OciSpec) {
    let kept = Mutex::new(None);
    let objects = Arc::clone(&scene.objects);
    let tenant = format!("opc-tenant:{TENANCY}");
    let listening = Listening::new(|host| {
        let instance = Arc::new(Instance {
            host,
            objects,
            leaf: Certified::new(&["opc-certtype:instance", &tenant]),
            intermediate: Certified::new(&[]),
            exchanges: AtomicU64::new(0),
            refused: Mutex::default(),
            tokens_count: Mutex::new(true),
            instead: Mutex::default(),
            no_token: Mutex::default(),
        });
        *kept.lock().unwrap() = Some(Arc::clone(&instance));
        instance
    })
    .await;
    let spec = OciSpec {
        auth: OciAuth::InstancePrincipal,
        metadata_endpoint: Some(listening.url.clone()),
        federation_endpoint: Some(listening.url.clone()),
        tenancy_ocid: None,
        user_ocid: None,
        key_fingerprint: None,
        private_key: None,
        ..scene.spec()
    };
    (kept.into_inner().unwrap().unwrap(), listening, spec)
}

impl Answers for Instance {
    async fn answer(
        self: Arc<Self>,
        request: Request<Bytes>,
    ) -> Result<Response<Full<Bytes>>, Error> {
        let path = request.uri().path();
        let answer = match (request.method().as_str(), path.strip_prefix("/opc/v2/")) {
            ("GET", Some(what)) => self.metadata(&request, what),
            ("POST", None) if path == "/v1/x509" => self.exchange(&request),
            _ => refused(StatusCode::NOT_FOUND, "NotFound"),
        };
        Ok(dated(answer, &*self.objects.clock))
    }
}

impl Instance {
    fn metadata(&self, request: &Request<Bytes>, what: &str) -> Response<Full<Bytes>> {
        if header(request, "authorization") != Some("Bearer Oracle") {
            return refused(StatusCode::FORBIDDEN, "NoBearer");
        }
        if let Some((of, status, body)) = &*self.instead.lock().unwrap()
            && *of == what
        {
            return said(*status, body);
        }
        match what {
            "identity/cert.pem" => said(200, &self.leaf.certificate),
            "identity/key.pem" => said(200, &self.leaf.key.serialize_pem()),
            "identity/intermediate.pem" => said(200, &self.intermediate.certificate),
            _ => refused(StatusCode::NOT_FOUND, "NotFound"),
        }
    }

    fn exchange(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        if let Some((status, body)) = &*self.no_token.lock().unwrap() {
            return said(*status, body);
        }
        if let Err(why) = self.check(request) {
            self.refused.lock().unwrap().push(why);
            return refused(StatusCode::UNAUTHORIZED, "NotAuthenticated");
        }
        let number = self.exchanges.fetch_add(1, Ordering::SeqCst) + 1;
        let end_s = self.objects.clock.now_ms() / 1_000 + TOKEN_S;
        let encoded = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let (head, claims) = (json!({ "alg": "RS256" }), json!({ "jti": number, "exp": end_s }));
        let token = format!("{}.{}.sign", encoded(head), encoded(claims));
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        let public = BASE64_STANDARD.decode(field(&body, "publicKey")).unwrap();
        if *self.tokens_count.lock().unwrap() {
            self.objects.trust(&format!("ST${token}"), &public);
        }
        said(200, &json!({ "token": token }).to_string())
    }

    /// Signed by the key of the certificate that is shown, which is the instance's.
    fn check(&self, request: &Request<Bytes>) -> Result<(), &'static str> {
        let verifier = Verifier {
            clock: &*self.objects.clock,
            host: &self.host,
            generic: &["date", "(request-target)"],
            body_is_signed: true,
        };
        let fingerprint: Vec<String> =
            Sha1::digest(&self.leaf.der).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = format!("{TENANCY}/fed-x509/{}", fingerprint.join(":"));
        let leaf = || self.leaf.key.subject_public_key_info();
        verifier.verify(request, |key_id| (key_id == expected).then(leaf))?;
        let body: Value = serde_json::from_slice(request.body()).map_err(|_| "no JSON")?;
        if field(&body, "certificate") != BASE64_STANDARD.encode(&self.leaf.der) {
            return Err("another certificate");
        }
        let between = json!([BASE64_STANDARD.encode(&self.intermediate.der)]);
        if body["intermediateCertificates"] != between {
            return Err("other certificates in between");
        }
        Ok(())
    }
}

fn said(status: u16, body: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_owned())));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}
