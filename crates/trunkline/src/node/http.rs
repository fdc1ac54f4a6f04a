//! `/metrics` for Prometheus and `/healthz` for whoever restarts daemons.

use super::metrics;
use crate::datapath::Asker;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Takes the address; whoever connects waits for [`serve`].
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves on `listener` from a thread of its own, until the process ends.
pub fn serve(listener: TcpListener, asker: Asker) -> io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health_page))
        .with_state(asker);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        let served = runtime.block_on(async {
            axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "metrics are no longer served");
        }
    })?;
    Ok(())
}

const SILENT: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "the packet thread does not answer\n");

/// The packet thread answers within a second; that wait must not hold up
/// another request.
async fn ask(asker: Asker) -> Option<crate::datapath::Snapshot> {
    tokio::task::spawn_blocking(move || asker.snapshot()).await.ok().flatten()
}

async fn metrics_page(State(asker): State<Asker>) -> Response {
    let Some(Ok(text)) = ask(asker).await.map(metrics::render) else {
        return SILENT.into_response();
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn health_page(State(asker): State<Asker>) -> Response {
    match ask(asker).await {
        Some(_) => "ok\n".into_response(),
        None => SILENT.into_response(),
    }
}
