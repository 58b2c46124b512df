//! TCP streams, with or without TLS, and unix streams, as one type.
//!
//! One type instead of a generic parameter in everything above. A stream is accepted by one thread
//! and served by another one, a worker, each with its own event loop (tokio runtime). So it is
//! detached from the acceptor's event loop and attached to the worker's, as an event loop polls
//! only its own sockets.
//!
//! On unix, a plain stream is read and written by calls of its socket, and polled through the event
//! loop only if the socket is not ready. tokio's own `poll_read` and `poll_write` do both each
//! time.
//!
//! A change must ensure that a stream is polled only by the event loop to which it is attached, and
//! that a poll which returns `Pending` has registered the task there.

use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{pin, Pin};
use std::task::{Context, Poll};

#[cfg(unix)]
use rustix::buffer::spare_capacity;
#[cfg(unix)]
use rustix::io::{writev, Errno};
#[cfg(unix)]
use rustix::net::{recv, send, RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// Whether tokio uses epoll or kqueue on this system.
#[cfg(unix)]
const EACH_ARRIVAL_IS_AN_EVENT: bool = cfg!(any(
    target_vendor = "apple",
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "illumos",
    target_os = "linux",
    target_os = "netbsd",
    target_os = "openbsd",
));

/// A stream of a client.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// Boxed, as the state of TLS is large, and most streams have none.
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

/// A stream that is not registered with any event loop, for moving it to another one.
#[derive(Debug)]
pub enum DetachedStream {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl DetachedStream {
    /// Registers the stream with the calling thread's event loop.
    pub fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

/// Runs the same expression on any kind of stream.
macro_rules! either {
    ($stream:expr, $inner:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($inner) => $do,
            #[cfg(unix)]
            Stream::Unix($inner) => $do,
            #[cfg(feature = "tls")]
            Stream::Tls($inner) => $do,
        }
    };
}

impl Stream {
    /// Disables Nagle's algorithm, so that short replies are sent at once. Unix streams have none.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            #[cfg(unix)]
            Self::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.get_ref().0.set_nodelay(true),
        }
    }

    /// Removes the stream from its event loop. Fails for a stream with TLS: only the acceptor
    /// detaches streams, and the handshake comes later, in the worker.
    pub fn detach(self) -> io::Result<DetachedStream> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(DetachedStream::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => stream.into_std().map(DetachedStream::Unix),
            #[cfg(feature = "tls")]
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Polls whether the stream may have input. One with TLS always may, as the input that was
    /// decrypted last can be longer than a read.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            #[cfg(unix)]
            Self::Unix(stream) => stream.poll_read_ready(cx),
            #[cfg(feature = "tls")]
            Self::Tls(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns whether the event loop has reported that the other end has closed the stream, or its
    /// sending direction; input may be left.
    pub async fn has_ended(&self) -> bool {
        let mut ready = pin!(async {
            match self {
                Self::Tcp(stream) => stream.ready(Interest::READABLE).await,
                #[cfg(unix)]
                Self::Unix(stream) => stream.ready(Interest::READABLE).await,
                #[cfg(feature = "tls")]
                Self::Tls(stream) => stream.get_ref().0.ready(Interest::READABLE).await,
            }
        });
        // Polled once: without input, it would wait for some.
        let ready = poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await;
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Reads once into the spare capacity of `buffer`, which must not be 0.
    pub fn poll_read_buf(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        #[cfg(unix)]
        if let Some(socket) = self.plain_socket() {
            let room = buffer.capacity() - buffer.len();
            match recv(socket, spare_capacity(buffer), RecvFlags::empty()) {
                Ok((_, read)) => {
                    if (1..room).contains(&read) {
                        self.note_drained();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(Errno::WOULDBLOCK) => {}
                Err(why) => return Poll::Ready(Err(why.into())),
            }
        }
        pin!(self.read_buf(buffer)).poll(cx)
    }

    /// Writes once, if the socket accepts output now and its bytes are not encrypted; otherwise
    /// fails with `WouldBlock`.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(unix)]
        if let Some(socket) = self.plain_socket() {
            // No signal either: Rust's runtime ignores SIGPIPE.
            return Ok(match slices {
                [only] => send(socket, only, SendFlags::empty())?,
                _ => writev(socket, slices)?,
            });
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Makes the next poll wait for an event: a read that did not fill its buffer has drained the
    /// socket. Only where each arrival is an event, by epoll or kqueue, as in tokio's `poll_read`.
    /// No event is lost in between, as the event loop runs on this thread.
    #[cfg(unix)]
    fn note_drained(&self) {
        if EACH_ARRIVAL_IS_AN_EVENT {
            let drained = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            // `WouldBlock` in any case.
            let _ = match self {
                Self::Tcp(stream) => stream.try_io(Interest::READABLE, drained),
                Self::Unix(stream) => stream.try_io(Interest::READABLE, drained),
                #[cfg(feature = "tls")]
                Self::Tls(_) => Ok(()),
            };
        }
    }

    /// Returns the socket, if its bytes are not encrypted.
    #[cfg(unix)]
    fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Unix(stream) => Some(stream.as_fd()),
            #[cfg(feature = "tls")]
            Self::Tls(_) => None,
        }
    }

    /// Returns whether the stream has TLS, whose clients expect a message before it closes.
    pub fn has_tls(&self) -> bool {
        match self {
            Self::Tcp(_) => false,
            #[cfg(unix)]
            Self::Unix(_) => false,
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }
}

/// With epoll or kqueue, tokio takes a read that does not fill the buffer to have drained the
/// socket: the next read waits for the event loop to report more input.
impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, input: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, input))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::io::AsyncWriteExt;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// Returns an event loop, a stream of it, and the other end.
    fn pair() -> (Runtime, Stream, std::net::TcpStream) {
        let event_loop = Builder::new_current_thread().enable_io().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = event_loop.block_on(async { DetachedStream::Tcp(stream).attach() }).unwrap();
        (event_loop, stream, client)
    }

    #[test]
    fn a_drained_stream_waits_for_more_input() {
        use std::io::Write;

        let (event_loop, mut stream, mut client) = pair();
        client.write_all(b"abcde").unwrap();
        event_loop.block_on(async {
            // The event loop reports the input, so only a read can end that it is ready.
            poll_fn(|cx| stream.poll_read_ready(cx)).await.unwrap();
            let mut buffer = Vec::with_capacity(4);
            assert_eq!(poll_fn(|cx| stream.poll_read_buf(cx, &mut buffer)).await.unwrap(), 4);
            assert!(poll_fn(|cx| Poll::Ready(stream.poll_read_ready(cx).is_ready())).await, "a byte may be left");
            buffer.reserve(100);
            assert_eq!(poll_fn(|cx| stream.poll_read_buf(cx, &mut buffer)).await.unwrap(), 1);
            #[cfg(unix)]
            if EACH_ARRIVAL_IS_AN_EVENT {
                assert!(poll_fn(|cx| Poll::Ready(stream.poll_read_ready(cx).is_pending())).await);
            }
            // Later than the poll, so that the task must be woken: by a byte, and by the end.
            let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
            let writer = std::thread::spawn(move || {
                pause();
                client.write_all(b"f").unwrap();
                client
            });
            assert_eq!(poll_fn(|cx| stream.poll_read_buf(cx, &mut buffer)).await.unwrap(), 1);
            let client = writer.join().unwrap();
            let writer = std::thread::spawn(move || {
                pause();
                drop(client);
            });
            assert_eq!(poll_fn(|cx| stream.poll_read_buf(cx, &mut buffer)).await.unwrap(), 0, "the end");
            assert_eq!(buffer, b"abcdef");
            writer.join().unwrap();
        });
    }

    #[test]
    fn the_end_is_noticed_behind_unread_input() {
        use std::io::Write;

        let (event_loop, stream, mut client) = pair();
        client.write_all(b"a").unwrap();
        event_loop.block_on(async {
            poll_fn(|cx| stream.poll_read_ready(cx)).await.unwrap();
            assert!(!stream.has_ended().await);
            client.shutdown(std::net::Shutdown::Write).unwrap();
            // The event loop polls its sockets only now and then, if a task is always ready.
            while !stream.has_ended().await {
                tokio::task::yield_now().await;
            }
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_full_socket_takes_the_rest_when_its_client_reads() {
        use std::io::Read;

        const BYTES: usize = 16 << 20;
        let (event_loop, mut stream, mut client) = pair();
        let bytes: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        event_loop.block_on(async {
            let (mut sent, mut is_vectored) = (0, false);
            let refused = loop {
                let (front, rest) = bytes[sent..].split_at(1000);
                let slices = if is_vectored { &[front, rest][..] } else { &[front] };
                is_vectored = !is_vectored;
                match stream.try_write(&slices.iter().map(|slice| IoSlice::new(slice)).collect::<Vec<_>>()) {
                    Ok(written) => {
                        sent += written;
                        assert!(sent < BYTES, "the socket's buffer takes all");
                    }
                    Err(why) => break why,
                }
            };
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            assert!(sent > 0);
            let reader = std::thread::spawn(move || {
                let mut received = vec![0; BYTES];
                client.read_exact(&mut received).unwrap();
                received
            });
            stream.write_all(&bytes[sent..]).await.unwrap();
            assert!(reader.join().unwrap() == bytes, "a byte is lost, repeated or moved");
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        });
    }
}
