//! The part of HTTP/1.1 that the example needs: one request per connection.
//!
//! Not a server to copy: it has no keep-alive and no body. Each connection is bounded in bytes and
//! time, so that a slow client holds one thread for a few seconds at most.
//!
//! A change must ensure that a connection stays bounded in bytes and time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{process, thread};

use super::Service;

/// The most bytes that a client may send.
const REQUEST_MAX: u64 = 8 << 10;
/// The longest that a connection may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// A connection that fails after its deadline. A timeout alone applies to each read: a client that
/// sends single bytes would occupy a thread.
struct Connection<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Connection<'_> {
    /// The time until the deadline.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Connection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Connection<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Serves until the process ends.
pub fn serve(service: &Service, address: SocketAddr, threads: u64) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    // `ci/examples.sh` reads the port from this line.
    println!("listening on {}", listener.local_addr()?);
    thread::scope(|scope| {
        for _ in 0..threads {
            let accept = || loop {
                // A client that disconnects is no error of the service.
                if let Err(error) = listener.accept().and_then(|(stream, _)| answer(service, &stream)) {
                    eprintln!("service: {error}");
                }
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, accept) {
                // The scope would wait for the other threads, which accept for ever.
                eprintln!("service: failed to spawn thread: {error}; give fewer --threads");
                process::exit(1);
            }
        }
    });
    Ok(())
}

/// Reads one request, and writes the service's answer to it.
fn answer(service: &Service, stream: &TcpStream) -> io::Result<()> {
    let mut connection = Connection { stream, deadline: Instant::now() + TIME_MAX };
    let mut lines = BufReader::new((&mut connection).take(REQUEST_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let mut host = String::new();
    for line in lines {
        let line = line?;
        match line.split_once(':') {
            // The host without its port.
            Some((name, value)) if name.eq_ignore_ascii_case("host") => {
                value.trim().split(':').next().unwrap_or_default().clone_into(&mut host);
            }
            Some(_) => {}
            None => break,
        }
    }
    let answer = path.map_or_else(|| Err((405, "GET only".to_owned())), |path| service.answer(&host, path));
    let (status, body) = match answer {
        Ok(body) => (200, body),
        Err((status, why)) => (status, (why + "\n").into()),
    };
    let (content_type, length) = (content_type(path.unwrap_or_default(), status), body.len());
    let head = format!("HTTP/1.1 {status} \r\nContent-Type: {content_type}\r\nContent-Length: {length}");
    write!(connection, "{head}\r\nConnection: close\r\n\r\n{body}")
}

fn content_type(path: &str, status: u16) -> &'static str {
    match path {
        // Prometheus 3 refuses the scrape without this type.
        "/metrics" => "text/plain; version=0.0.4; charset=utf-8",
        path if path.starts_with("/page/") && status == 200 => "text/html; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            let start = Instant::now();
            scope.spawn(move || {
                // Ends when the connection is closed.
                while start.elapsed() < Duration::from_secs(30) && client.write_all(b"a").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let mut connection = Connection { stream: &stream, deadline: start + Duration::from_millis(100) };
            let error = connection.read_to_end(&mut Vec::new()).unwrap_err();
            assert!([io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock].contains(&error.kind()), "{error}");
            assert!(start.elapsed() < Duration::from_secs(20));
            assert!(connection.write(b"b").is_err(), "the deadline is for the answer, too");
            drop(stream);
        });
    }
}
