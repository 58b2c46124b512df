//! As much of HTTP/1.1 as the example needs: one request for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::Service;

/// The most that a client may send, and the longest that it may take.
const REQUEST_MAX: u64 = 8 << 10;
const TIME_MAX: Duration = Duration::from_secs(5);

/// Serves until the process ends.
pub fn serve(service: &Service, address: SocketAddr, threads: u64) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| loop {
                // A client that goes away is no fault of the service.
                if let Err(error) = listener.accept().and_then(|(stream, _)| answer(service, &stream)) {
                    eprintln!("service: {error}");
                }
            });
        }
    });
    Ok(())
}

fn answer(service: &Service, stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIME_MAX))?;
    stream.set_write_timeout(Some(TIME_MAX))?;
    let mut lines = BufReader::new(stream.take(REQUEST_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let mut host = String::new();
    for line in lines {
        let line = line?;
        match line.split_once(':') {
            // Without the port.
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
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} \r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}
