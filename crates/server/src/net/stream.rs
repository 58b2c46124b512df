//! TCP and unix streams as one type.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A TCP or unix stream.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A stream that belongs to no event loop, on its way from one to another.
#[derive(Debug)]
pub enum DetachedStream {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl DetachedStream {
    /// Attaches the stream to the current event loop.
    pub fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

/// Does the same with either.
macro_rules! either {
    ($stream:expr, $inner:ident => $do:expr) => {
        match $stream {
            Stream::Tcp($inner) => $do,
            #[cfg(unix)]
            Stream::Unix($inner) => $do,
        }
    };
}

impl Stream {
    /// Sends short replies at once.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            #[cfg(unix)]
            Self::Unix(_) => Ok(()),
        }
    }

    /// Detaches the stream from its event loop.
    pub fn detach(self) -> io::Result<DetachedStream> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(DetachedStream::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => stream.into_std().map(DetachedStream::Unix),
        }
    }

    /// Resolves when there may be something to read, or the client is gone.
    pub async fn readable(&self) -> io::Result<()> {
        either!(self, stream => stream.readable().await)
    }

    /// Reads what there is into `input`'s spare room.
    pub fn try_read_buf(&self, input: &mut Vec<u8>) -> io::Result<usize> {
        either!(self, stream => stream.try_read_buf(input))
    }
}

/// A read that leaves room in the buffer is taken for all there is, so the next one is not tried
/// before there is more.
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
