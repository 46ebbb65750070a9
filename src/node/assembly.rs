//! From a configuration to a running node: the real ports, the sources, the children of `front`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::model::source::SourceSpec;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::node::{Handles, Node, NodeSettings, Ports, Roles};
use ankusa_actors::ports::{BlobStores, Clock, Entropy, Events};
use ankusa_actors::sources::{BuildSource, SourceSetup, Sources, StoreSetup};
use ankusa_actors::supervision::{ChildSpec, Shutdown, Slot};
use ankusa_actors::tree::{Front, MakeFront};
use tokio::sync::watch;

use super::probing::{self, Unsafe};
use super::sockets::Sockets;
use super::stores;
use crate::blob::transport::World;
use crate::config::{self, CompactionStyle, Config, Role, SourceStoreType};
use crate::front::admin::{AdminServer, AdminServerArgs};
use crate::front::auth::Authorizer;
use crate::front::body::BodyMemory;
use crate::front::control::{ControlServer, ControlServerArgs};
use crate::front::gauges::{Gauges, GaugesArgs};
use crate::front::http2::Http2Limits;
use crate::front::ingest::{IngestServer, IngestServerArgs};
use crate::front::listener::{Limits, Terms};
use crate::front::routes::{Api, Control, admin_routes};
use crate::front::routes_admin::{RoutesApi, listener_routes};
use crate::front::sources::SourcesApi;
use crate::front::spool::Spool;
use crate::front::tls::Tls;
use crate::host::{HostClock, HostEntropy};
use crate::rocks::{self, Compaction, RocksEngine, RocksOptions, WriteBuffers};
use crate::sources::SourceRules;
use crate::telemetry::metrics::Metrics;

/// The version every answer and log line names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long the admin port and the control socket wait for requests under way at a stop.
const DRAIN_ADMIN: Duration = Duration::from_secs(1);

/// What a listener gets on top of its own drain before it is killed.
const STOP_EXTRA: Duration = Duration::from_secs(5);

type BootError = Box<dyn std::error::Error + Send + Sync>;

pub(super) async fn start(
    config: &Config,
    stop: Arc<watch::Sender<bool>>,
    found_unsafe: &Arc<watch::Sender<Unsafe>>,
) -> Result<Node, BootError> {
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let entropy: Arc<dyn Entropy> = Arc::new(HostEntropy);
    let metrics = Arc::new(Metrics::new(config));
    let rules = Arc::new(SourceRules::new(config, &clock)?);
    let sources = sources(config, &rules)?;
    let certificates = Certificates::open(config, &metrics)?;
    // Before anything is put in it, the control socket included: a folder whose entry a power cut takes back takes the
    // store with it.
    let folder = config.instance_dir();
    let made = rocks::create_synced(&folder);
    made.map_err(|error| format!("node.data_dir: cannot make {}: {error}", folder.display()))?;
    // Before anything is opened: a second node on this directory fails here, not in the database.
    let sockets = Sockets::bind(config)?;
    let control_path = sockets.control_path.clone();
    // Ours, and nobody is there to answer on it if this fails.
    let unless_started = Unbound(control_path);
    let world = World {
        clock: Arc::clone(&clock),
        entropy: Arc::clone(&entropy),
        events: Arc::clone(&metrics) as Arc<dyn Events>,
        pools: Arc::default(),
        breakers: Arc::default(),
    };
    let objects = stores::open(config, &world)?;
    let unknown = probing::at_boot(&objects.distinct, &entropy).await?;
    let store = config.instance_dir().join("store");
    let ports = Ports {
        engine: Arc::new(RocksEngine::new(store, rocks_options(config))),
        clock: Arc::clone(&clock),
        entropy: Arc::clone(&entropy),
        events: Arc::clone(&metrics) as _,
    };
    let settings = settings(config);
    let parts = FrontParts {
        config: config.clone(),
        settings: settings.clone(),
        rules,
        sockets,
        clock,
        metrics,
        certificates,
        stop,
        stores: objects.stores,
    };
    let front: MakeFront = Arc::new(move |handles| parts.children(handles));
    let node = Node::start(ports, settings, sources, front).await?;
    unless_started.forget();
    probing::go_on(unknown, &entropy, found_unsafe);
    Ok(node)
}

/// The control socket of a start that has not succeeded: nobody is there to answer on it.
struct Unbound(PathBuf);

impl Unbound {
    fn forget(mut self) {
        self.0.clear();
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn settings(config: &Config) -> NodeSettings {
    NodeSettings {
        instance: config.node.instance.clone(),
        roles: Roles {
            edge: config.has_role(Role::Edge),
            dispatch: config.has_role(Role::Dispatch),
            storage: config.has_role(Role::Storage),
        },
        value_version: match config.queue.value_version {
            0 => ValueVersion::V0,
            _one => ValueVersion::V1,
        },
        ingest: config.http.ingest(),
        rate_limits: config.rate_limits.clone(),
        quarantine: config.quarantine.clone(),
        routes: config.routes.settings(),
        batcher: config.batcher.clone(),
        tenants: config.tenants.clone(),
        dedupe: config.dedupe.clone(),
        store: config.store.clone(),
        dispatch: config.dispatch.clone(),
    }
}

/// How the store of a node is opened.
pub(crate) fn rocks_options(config: &Config) -> RocksOptions {
    let rocksdb = &config.queue.rocksdb;
    RocksOptions {
        block_cache_bytes: rocksdb.block_cache_bytes,
        bloom_bits_per_key: rocksdb.bloom_bits_per_key,
        max_open_files: rocksdb.max_open_files,
        write_buffers: WriteBuffers::of_each(|cf| rocksdb.write_buffer_of(cf)),
        compaction: match rocksdb.compaction_style {
            CompactionStyle::Level => Compaction::Level,
            CompactionStyle::Universal => Compaction::Universal,
        },
        rate_limit_bytes_per_s: rocksdb.rate_limit_bytes_per_s,
        max_background_jobs: rocksdb.max_background_jobs,
        open_deadline_ms: config.store.open_deadline_ms,
    }
}

/// The sources of the configuration, and how others are kept.
fn sources(config: &Config, rules: &Arc<SourceRules>) -> Result<SourceSetup, BootError> {
    let source = |(id, spec): (&String, &SourceSpec)| {
        rules.build(id, spec).map_err(|error| format!("sources.{id}.{error}"))
    };
    let configured = config.sources.iter().map(source).collect::<Result<Sources, _>>()?;
    let store = match config.source_store.kind {
        SourceStoreType::Static => None,
        SourceStoreType::Persistent => Some(StoreSetup {
            builder: Arc::clone(rules) as _,
            max_sources: config.source_store.max_sources,
        }),
    };
    Ok(SourceSetup { configured: Arc::new(configured), store })
}

/// What the children of `front` are made from, at every start of it.
struct FrontParts {
    config: Config,
    settings: NodeSettings,
    rules: Arc<SourceRules>,
    sockets: Sockets,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    certificates: Certificates,
    stop: Arc<watch::Sender<bool>>,
    stores: BlobStores,
}

/// What the listeners prove themselves with. It outlives them.
struct Certificates {
    ingest: Option<Arc<Tls>>,
    admin: Option<Arc<Tls>>,
    /// With the files of the admin port.
    routes: Option<Arc<Tls>>,
}

impl Certificates {
    fn open(config: &Config, metrics: &Metrics) -> Result<Self, BootError> {
        let (http, admin) = (&config.http, &config.admin);
        let ingest = Arc::clone(&metrics.listeners.ingest);
        let ingest = Tls::open(&http.tls, http.http2.enabled, ingest);
        let of_admin = Tls::open(&admin.tls, false, Arc::clone(&metrics.listeners.admin));
        let of_routes = metrics.listeners.routes.clone();
        let of_routes = of_routes.map(|series| Tls::open(&admin.tls, false, series));
        let of_routes = of_routes.transpose().map_err(|error| format!("admin.{error}"))?;
        Ok(Self {
            routes: of_routes.flatten(),
            ingest: ingest.map_err(|error| format!("http.{error}"))?,
            admin: of_admin.map_err(|error| format!("admin.{error}"))?,
        })
    }
}

impl FrontParts {
    fn children(&self, handles: &Handles) -> Front {
        let admin = Admin::new(handles.clone(), self.settings.clone(), VERSION);
        let mut before = vec![self.control(&admin), self.gauges(&admin)];
        before.extend(self.admin(&admin));
        before.extend(self.routes(&admin));
        Front { before, after: self.ingest(&admin, handles).into_iter().collect() }
    }

    fn limits(&self) -> Limits {
        let http = &self.config.http;
        Limits {
            header_timeout: Duration::from_millis(http.header_timeout_ms),
            idle_timeout: Duration::from_millis(http.idle_timeout_ms),
            max_connections: http.max_connections,
            max_headers: http.max_headers,
            max_header_bytes: http.max_header_bytes,
            http2: None,
        }
    }

    /// The ingest port alone speaks HTTP/2.
    fn ingest_limits(&self) -> Limits {
        let http2 = &self.config.http.http2;
        let limits = Http2Limits {
            max_streams: http2.max_streams,
            stream_window_bytes: http2.stream_window_bytes,
            connection_window_bytes: http2.connection_window_bytes,
            max_frame_bytes: http2.max_frame_bytes,
            max_resets: http2.max_resets,
        };
        Limits { http2: http2.enabled.then_some(limits), ..self.limits() }
    }

    fn api(&self, admin: &Admin, authorizer: Authorizer) -> Api {
        Api {
            admin: admin.clone(),
            metrics: Arc::clone(&self.metrics),
            config: Arc::new(config::redacted(&self.config)),
            sources: SourcesApi {
                rules: Arc::clone(&self.rules),
                configured: Arc::new(self.config.sources.clone()),
                ingest: self.config.http.ingest(),
            },
            authorizer,
        }
    }

    fn control(&self, admin: &Admin) -> ChildSpec {
        let args = ControlServerArgs {
            socket: Arc::clone(&self.sockets.control),
            path: self.sockets.control_path.clone(),
            terms: Terms {
                limits: self.limits(),
                tls: None,
                series: Arc::clone(&self.metrics.listeners.control),
            },
            drain: DRAIN_ADMIN,
            control: Control {
                // The file mode is the authentication.
                api: self.api(admin, Authorizer::default()),
                allow_crash: self.config.control.allow_crash,
                stop: Arc::clone(&self.stop),
                stores: self.stores.clone(),
                spool: Spool {
                    folder: self.config.instance_dir(),
                    leave_bytes: self.config.store.resume_free_bytes,
                },
            },
        };
        let shutdown = Shutdown::Stop(DRAIN_ADMIN + STOP_EXTRA);
        ChildSpec::new("control", shutdown, &Slot::default(), move || (ControlServer, args.clone()))
    }

    fn gauges(&self, admin: &Admin) -> ChildSpec {
        let args = GaugesArgs {
            interval: Duration::from_millis(self.config.admin.gauge_interval_ms),
            data_dir: self.config.instance_dir(),
            clock: Arc::clone(&self.clock),
            admin: admin.clone(),
            metrics: Arc::clone(&self.metrics),
        };
        let shutdown = Shutdown::Stop(STOP_EXTRA);
        ChildSpec::new("gauges", shutdown, &Slot::default(), move || (Gauges, args.clone()))
    }

    fn admin(&self, admin: &Admin) -> Option<ChildSpec> {
        let args = AdminServerArgs {
            socket: Arc::clone(self.sockets.admin.as_ref()?),
            terms: Terms {
                limits: self.limits(),
                tls: self.certificates.admin.clone(),
                series: Arc::clone(&self.metrics.listeners.admin),
            },
            drain: DRAIN_ADMIN,
            routes: admin_routes(self.api(admin, Authorizer::new(&self.config.admin.tokens))),
            stopping: admin.handles.stopping.clone(),
        };
        let shutdown = Shutdown::Stop(DRAIN_ADMIN + STOP_EXTRA);
        let make = move || (AdminServer, args.clone());
        Some(ChildSpec::new("admin", shutdown, &Slot::default(), make))
    }

    fn routes(&self, admin: &Admin) -> Option<ChildSpec> {
        let api = RoutesApi {
            admin: admin.clone(),
            authorizer: Authorizer::new(&self.config.admin.tokens),
        };
        let args = AdminServerArgs {
            socket: Arc::clone(self.sockets.routes.as_ref()?),
            terms: Terms {
                limits: self.limits(),
                tls: self.certificates.routes.clone(),
                series: Arc::clone(self.metrics.listeners.routes.as_ref()?),
            },
            drain: DRAIN_ADMIN,
            routes: listener_routes(api),
            stopping: admin.handles.stopping.clone(),
        };
        let shutdown = Shutdown::Stop(DRAIN_ADMIN + STOP_EXTRA);
        let make = move || (AdminServer, args.clone());
        Some(ChildSpec::new("routes_admin", shutdown, &Slot::default(), make))
    }

    fn ingest(&self, admin: &Admin, handles: &Handles) -> Option<ChildSpec> {
        let drain = Duration::from_millis(self.config.shutdown.drain_ms);
        let args = IngestServerArgs {
            socket: Arc::clone(self.sockets.ingest.as_ref()?),
            terms: Terms {
                limits: self.ingest_limits(),
                tls: self.certificates.ingest.clone(),
                series: Arc::clone(&self.metrics.listeners.ingest),
            },
            body_timeout: Duration::from_millis(self.config.http.body_timeout_ms),
            body_memory: BodyMemory::new(
                self.config.http.max_body_memory_bytes,
                self.metrics.body_memory.clone(),
            ),
            drain,
            ingest: Arc::clone(&handles.ingest),
            admin: admin.clone(),
        };
        let shutdown = Shutdown::Stop(drain + STOP_EXTRA);
        let make = move || (IngestServer, args.clone());
        Some(ChildSpec::new("ingest", shutdown, &Slot::default(), make))
    }
}
