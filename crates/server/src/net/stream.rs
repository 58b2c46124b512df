//! TCP streams, with or without TLS, and unix streams, as one type.
//!
//! One type instead of a generic parameter in everything above. A stream is accepted by one thread
//! and served by another one, a worker, each with its own event loop (tokio runtime). So it is
//! detached from the acceptor's event loop and attached to the worker's, as an event loop polls
//! only its own sockets.
//!
//! A change must ensure that a stream is polled only by the event loop to which it is attached.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

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

/// On Linux, tokio takes a read that does not fill the buffer to have drained the socket: the next
/// read waits for the event loop to report more input.
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
