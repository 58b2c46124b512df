//! `--http`: an HTTP endpoint for monitoring and for browsers. Off by default.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that shows memory, hits, reclaim and tenants as they change; `/page.css`, `/page.js` belong to it |
//! | `/state.json` | the data of the page, which requests it once a second: see `state.rs` |
//! | `/history.json` | the figures of the last two minutes, one sample a second, without tenants |
//! | `/metrics` | counters and gauges as Prometheus reads them |
//! | `/debug/shrinker` | the shrinkers' names |
//! | `/debug/shrinker/<name>/count` | a shrinker's objects, as in the kernel's debugfs: group id, then objects on each node |
//!
//! Responses contain numbers, names of shrinkers and group ids, and tenants' names in `/state.json`
//! and, with `--metrics-tenants`, in `/metrics`. The page and its data are served only if the
//! `Host` header is an address or `localhost`, or absent ([`Request::is_by_address`]). No CORS
//! header allows the scripts of other sites to read a response, and [`POLICY`] limits what the page
//! itself may load and run.
//!
//! The cache port is not disturbed: there are at most [`CONNECTIONS_MAX`] HTTP connections at a
//! time, each with one request that is bounded in bytes and time; and requests are answered on
//! blocking threads, not on those that serve cache clients.
//!
//! A change must ensure that no response contains a key or a value, and that requests do not slow
//! the cache port.

pub mod history;
mod metrics;
mod request;
mod state;
pub mod tenant_metrics;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Semaphore};
use tokio::time::MissedTickBehavior;

use crate::server::Server;
use crate::timers::{self, timeout};
use request::{Method, Request, RequestError};

/// Bound on open connections: scrapers come every few seconds, and browsers are few.
const CONNECTIONS_MAX: usize = 4;
/// Time in which a client must send its request and read the response; then its connection is
/// closed, so that others can use the permit.
const TIME_MAX: Duration = Duration::from_secs(5);
/// How long further input is read and discarded after the response: closing a socket with unread
/// input resets the connection, and the client could lose the response.
const LINGER_TIME_MAX: Duration = Duration::from_millis(200);
/// Pause before the next `accept` after one failed, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The page's Content-Security-Policy: load its own style and script, show images of `data:` URLs
/// (the empty icon), send requests to its own server. Nothing from other servers, no inline style
/// or script, no embedding in a frame.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// The files of the page: path, content type, text.
const PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("http/page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("http/page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("http/page/page.js")),
];

/// A response, to which [`handle`] adds the headers.
#[derive(Debug)]
struct Response {
    status: &'static str,
    content_type: &'static str,
    body: Cow<'static, str>,
}

/// Serves requests until the server closes.
pub async fn serve(server: Arc<Server>, listener: TcpListener, closing: watch::Receiver<()>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::spawn(keep_history(Arc::clone(&server), closing.clone()));
    loop {
        // While all permits are taken, new connections wait in the listener's queue.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (server, mut closing) = (Arc::clone(&server), closing.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        // The channel carries no message: it resolves when the server drops the
                        // sender.
                        _ = closing.changed() => {}
                        done = timeout(TIME_MAX, handle(&server, stream)) => {
                            if let Ok(Err(why)) = done {
                                server.log(1, format_args!("http {peer}: {why}"));
                            }
                        }
                    }
                    drop(permit);
                });
            }
            Err(why) => {
                server.log(1, format_args!("http: cannot accept a connection: {why}"));
                timers::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Samples the figures until the server closes.
async fn keep_history(server: Arc<Server>, mut closing: watch::Receiver<()>) {
    let mut ticks = timers::interval(history::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // The channel carries no message: it resolves when the server drops the sender.
            _ = closing.changed() => return,
            _ = ticks.tick() => {
                let sampled = Arc::clone(&server);
                // An error means that the server is shutting down, or that the sample panicked and
                // is left out.
                let _ = tokio::task::spawn_blocking(move || sampled.history.add(state::figures(&sampled))).await;
            }
        }
    }
}

/// Serves one connection: reads a request within its bounds, answers it, and closes.
async fn handle(server: &Arc<Server>, mut stream: TcpStream) -> io::Result<()> {
    let (method, answer) = match read(&mut stream).await? {
        Ok(request) => {
            let server = Arc::clone(server);
            let method = request.method;
            (method, tokio::task::spawn_blocking(move || respond(&server, &request)).await?)
        }
        Err(error) => (Method::Get, Response::text(error.status(), format!("{error}\n"))),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Content-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.content_type,
        answer.body.len(),
        if answer.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" },
    );
    stream.write_all(head.as_bytes()).await?;
    if method == Method::Get {
        stream.write_all(answer.body.as_bytes()).await?;
    }
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    let _ = timeout(LINGER_TIME_MAX, async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} }).await;
    Ok(())
}

/// Reads a request up to the end of its head; a body is ignored.
async fn read(stream: &mut TcpStream) -> io::Result<Result<Request, RequestError>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        if let Some(request) = request::parse(&head) {
            return Ok(request);
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the response to a request; runs on a blocking thread.
fn respond(server: &Server, request: &Request) -> Response {
    let path = request.path.as_str();
    let part = PAGE.iter().find(|part| part.0 == path);
    if (part.is_some() || matches!(path, "/state.json" | "/history.json")) && !request.is_by_address() {
        let why =
            "use an address, as http://127.0.0.1: a request with another host name may come from another site's page\n";
        return Response::text("421 Misdirected Request", why);
    }
    if let Some(&(_, content_type, text)) = part {
        return Response { status: "200 OK", content_type, body: text.into() };
    }
    let registry = server.store.runtime().registry();
    let debug = path.strip_prefix("/debug/shrinker").map(|rest| rest.trim_matches('/'));
    match (path, debug) {
        ("/state.json", _) => Response {
            status: "200 OK",
            content_type: "application/json",
            body: state::json(server).to_string().into(),
        },
        ("/history.json", _) => Response {
            status: "200 OK",
            content_type: "application/json",
            body: server.history.json().to_string().into(),
        },
        ("/metrics", _) => {
            Response { status: "200 OK", content_type: metrics::CONTENT_TYPE, body: metrics::text(server).into() }
        }
        (_, Some("")) => Response::text("200 OK", registry.debugfs_names().join("\n") + "\n"),
        (_, Some(rest)) => {
            let name = rest.strip_suffix("/count").and_then(|name| registry.debugfs_find(name));
            match name.and_then(|id| registry.debugfs_count(id)) {
                Some(text) => Response::text("200 OK", text),
                None => Response::text("404 Not Found", "no such shrinker; /debug/shrinker lists them\n"),
            }
        }
        _ => Response::text(
            "404 Not Found",
            "there is /, /state.json, /history.json, /metrics and /debug/shrinker/<name>/count\n",
        ),
    }
}

impl Response {
    fn text(status: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}
