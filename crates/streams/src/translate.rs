//! Exec and attach: maps channels of a WebSocket `v5.channel.k8s.io` to SPDY streams of the
//! runtime, which need not support the subprotocol.

mod status;

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::StreamError;
use crate::copy::{Activity, BUFFER_BYTES, CLOSE_TIMEOUT, End};
use crate::spdy::{self, Control, Head, Opener, SpdyError};
use crate::websocket::{self, FromClient, Received, STATUS_TIMEOUT, ToClient};
use status::Status;

/// Stream protocol of the SPDY connection: a JSON status at the end, and a stream for resizes.
pub(crate) const REMOTE_COMMAND_V4: &str = "v4.channel.k8s.io";

/// Timeout for the runtime to accept the streams, as upstream `createStreamResponseTimeout`.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of the runtime's status.
const MAX_STATUS_BYTES: usize = 64 << 10;
/// Maximum queued replies to the runtime.
const MAX_REPLIES: usize = 16;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CHANNELS: u8 = 5;
/// Marks a message that closes the channel in its second byte.
const CLOSE: u8 = 255;

/// The requested streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandStreams {
    /// The client sends stdin.
    pub stdin: bool,
    /// The client gets stdout.
    pub stdout: bool,
    /// The client gets stderr; a terminal has none.
    pub stderr: bool,
    /// The command has a terminal, whose size the client sets.
    pub tty: bool,
}

impl CommandStreams {
    /// Returns the channels in the order in which their streams are opened.
    fn channels(self) -> impl Iterator<Item = u8> {
        let channels = [
            (ERROR, true),
            (STDIN, self.stdin),
            (STDOUT, self.stdout),
            (STDERR, self.stderr && !self.tty),
            (RESIZE, self.tty),
        ];
        let open = channels.into_iter().filter(|(_, is_open)| *is_open);
        open.map(|(channel, _)| channel)
    }

    /// Returns the lowest channel towards the client.
    fn first_output(self) -> u8 {
        let mut outputs = [(STDOUT, self.stdout), (STDERR, self.stderr)].into_iter();
        let first = outputs.find(|(_, is_open)| *is_open);
        first.map_or(ERROR, |(channel, _)| channel)
    }
}

/// Serves a client until the command, the client or either connection ends. `connect` is awaited
/// after the WebSocket handshake: from there on errors are a status in its channel.
pub(crate) async fn serve<C, R>(
    client: C,
    connect: impl Future<Output = Result<R, StreamError>>,
    streams: CommandStreams,
    idle: Duration,
) -> End
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let (mut to_client, mut from_client) = websocket::serve(client).await;
    // an empty message confirms the connection
    let begun = send(&mut to_client, streams.first_output(), &[]).await;
    if begun.is_err() {
        return End::Client;
    }
    let ended = match connect.await {
        Ok(runtime) => {
            let client = (&mut to_client, &mut from_client);
            exchange(client, runtime, streams, idle).await
        }
        Err(error) => Ended::Command(Status::internal_error(&error.to_string())),
    };
    let end = match ended {
        Ended::Command(status) => {
            let json = status.to_json();
            let sent = timeout(STATUS_TIMEOUT, send(&mut to_client, ERROR, &json)).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!(?status, "command status not sent: client does not read");
            }
            End::Runtime
        }
        Ended::Client => End::Client,
        Ended::Idle => End::Idle,
    };
    websocket::close(to_client, from_client).await;
    end
}

/// Why the streams of a command ended.
enum Ended {
    Command(Status),
    /// The client closed its side or disconnected.
    Client,
    /// Idle timeout.
    Idle,
}

/// The client does not read any more.
struct ClientGone;

async fn send<C>(to: &mut ToClient<C>, channel: u8, bytes: &[u8]) -> Result<(), ClientGone>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = Vec::with_capacity(1 + bytes.len());
    message.push(channel);
    message.extend_from_slice(bytes);
    let sent = to.send(Message::binary(message)).await;
    sent.map_err(|_| ClientGone)
}

async fn exchange<C, R>(
    (to_client, from_client): (&mut ToClient<C>, &mut FromClient<C>),
    runtime: R,
    streams: CommandStreams,
    idle: Duration,
) -> Ended
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    let table = Table::new(streams);
    let (from_runtime, mut to_runtime) = tokio::io::split(runtime);
    if let Err(error) = open(&mut to_runtime, &table).await {
        return Ended::Command(Status::internal_error(&error.to_string()));
    }
    let activity = Activity::new();
    let shared = Shared {
        accepted: Notify::new(),
        stdin_closed: AtomicBool::new(false),
        activity: &activity,
    };
    let (frames, waiting) = mpsc::channel(1);
    let (replies, urgent) = mpsc::channel(MAX_REPLIES);
    let input = Input {
        frames,
        stdin: table.id(STDIN),
        resize: table.id(RESIZE),
        shared: &shared,
    };
    let output = Output {
        from_runtime,
        to_client,
        replies,
        table,
        message: Vec::new(),
        shared: &shared,
    };
    let mut write = pin!(write(to_runtime, urgent, waiting));
    let ended = tokio::select! {
        biased;
        // first: the runtime's last output reaches the client even if the client has closed its
        // side
        ended = output.pass() => ended,
        ended = input.pass(from_client) => ended,
        // ends after both of the others
        () = &mut write => Ended::Client,
        () = activity.idle(idle) => Ended::Idle,
    };
    if matches!(ended, Ended::Client) {
        // what the client sent before its end
        let _ = timeout(CLOSE_TIMEOUT, write).await;
    }
    ended
}

/// Opens all streams at once.
async fn open<R>(to_runtime: &mut WriteHalf<R>, table: &Table) -> Result<(), Broken>
where
    R: AsyncRead + AsyncWrite,
{
    let mut opener = Opener::new()?;
    let mut frames = Vec::new();
    for stream in &table.0 {
        let kind = stream_type(stream.channel);
        frames.extend(opener.open(stream.id, "streamtype", kind)?);
    }
    let write = async {
        to_runtime.write_all(&frames).await?;
        to_runtime.flush().await
    };
    let written = timeout(ACCEPT_TIMEOUT, write).await;
    written
        .map_err(|_| Broken::NotAccepted)?
        .map_err(Broken::Io)
}

/// Why the connection to the runtime is unusable.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("connection to the container runtime's streaming server broke: {0}")]
    Io(#[source] std::io::Error),
    #[error("the container runtime's streaming server sent an invalid frame: {0}")]
    Frame(#[from] SpdyError),
    #[error("the container runtime's streaming server rejected the {0} stream")]
    Rejected(&'static str),
    #[error("the container runtime's streaming server did not accept all streams in time")]
    NotAccepted,
    #[error("the container runtime's streaming server sent a status of more than {0} bytes")]
    LongStatus(usize),
    #[error("the container runtime's streaming server does not read ping responses")]
    Replies,
}

impl From<Broken> for Ended {
    fn from(error: Broken) -> Self {
        Self::Command(Status::internal_error(&error.to_string()))
    }
}

fn stream_type(channel: u8) -> &'static str {
    match channel {
        STDIN => "stdin",
        STDOUT => "stdout",
        STDERR => "stderr",
        RESIZE => "resize",
        _ => "error",
    }
}

/// The open streams and their state.
#[derive(Debug)]
struct Table(Vec<Stream>);

#[derive(Debug)]
struct Stream {
    id: u32,
    channel: u8,
    is_accepted: bool,
    /// The runtime has closed its half.
    is_ended: bool,
}

impl Table {
    /// Assigns odd numbers, as streams of a client have.
    fn new(streams: CommandStreams) -> Self {
        let ids = (1..).step_by(2);
        let streams = ids.zip(streams.channels()).map(|(id, channel)| Stream {
            id,
            channel,
            is_accepted: false,
            is_ended: false,
        });
        Self(streams.collect())
    }

    fn id(&self, channel: u8) -> Option<u32> {
        let stream = self.0.iter().find(|stream| stream.channel == channel)?;
        Some(stream.id)
    }

    fn channel(&self, id: u32) -> Option<u8> {
        let stream = self.0.iter().find(|stream| stream.id == id)?;
        Some(stream.channel)
    }

    fn stream(&mut self, id: u32) -> Option<&mut Stream> {
        self.0.iter_mut().find(|stream| stream.id == id)
    }

    fn is_accepted(&self) -> bool {
        self.0.iter().all(|stream| stream.is_accepted)
    }

    /// Returns whether the output and the status are complete.
    fn is_complete(&self) -> bool {
        let mut outputs = self.0.iter();
        outputs.all(|it| it.is_ended || [STDIN, RESIZE].contains(&it.channel))
    }
}

/// State shared by both directions.
#[derive(Debug)]
struct Shared<'a> {
    /// Notified when all streams are accepted.
    accepted: Notify,
    /// Either side has closed stdin.
    stdin_closed: AtomicBool,
    activity: &'a Activity,
}

/// From the client to the runtime.
struct Input<'a> {
    frames: mpsc::Sender<Vec<u8>>,
    stdin: Option<u32>,
    resize: Option<u32>,
    shared: &'a Shared<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientMessage<'a> {
    Data(u8, &'a [u8]),
    Close(u8),
    /// Empty, or for an unknown channel; ignored, as upstream.
    Ignored,
    /// Violates the protocol; ends the session.
    Invalid,
}

impl<'a> ClientMessage<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        match bytes {
            [CLOSE, channel @ 0..CHANNELS] => Self::Close(*channel),
            [CLOSE, ..] => Self::Invalid,
            [channel @ 0..CHANNELS, payload @ ..] => Self::Data(*channel, payload),
            _ => Self::Ignored,
        }
    }
}

impl Input<'_> {
    async fn pass<C>(self, from_client: &mut FromClient<C>) -> Ended
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let mut early = match self.accepted(from_client).await {
            Ok(early) => early,
            Err(ended) => return ended,
        };
        loop {
            let bytes = match early.take() {
                Some(bytes) => bytes,
                None => match websocket::receive(from_client).await {
                    Received::Bytes(bytes) | Received::Text(bytes) => bytes,
                    Received::End => return Ended::Client,
                },
            };
            self.shared.activity.touch();
            let passed = match ClientMessage::new(&bytes) {
                ClientMessage::Data(STDIN, payload) if !self.is_stdin_closed() => {
                    self.data(self.stdin, payload).await
                }
                ClientMessage::Data(RESIZE, payload) => self.data(self.resize, payload).await,
                ClientMessage::Close(STDIN) => self.close_stdin().await,
                ClientMessage::Invalid => {
                    tracing::debug!("client violates v5.channel.k8s.io");
                    return Ended::Client;
                }
                ClientMessage::Data(..) | ClientMessage::Close(_) | ClientMessage::Ignored => {
                    Ok(())
                }
            };
            if let Err(error) = passed {
                return error.into();
            }
            self.shared.activity.touch();
        }
    }

    /// Waits until the runtime has accepted all streams. Returns the first message of that time:
    /// without a read, a disconnected client would hold the session.
    async fn accepted<C>(&self, from_client: &mut FromClient<C>) -> Result<Option<Bytes>, Ended>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let mut early = None;
        let mut accepted = pin!(timeout(ACCEPT_TIMEOUT, self.shared.accepted.notified()));
        loop {
            tokio::select! {
                biased;
                accepted = &mut accepted => {
                    return match accepted {
                        Ok(()) => Ok(early),
                        Err(_) => Err(Broken::NotAccepted.into()),
                    };
                }
                received = websocket::receive(from_client), if early.is_none() => match received {
                    Received::Bytes(bytes) | Received::Text(bytes) => early = Some(bytes),
                    Received::End => return Err(Ended::Client),
                },
            }
        }
    }

    fn is_stdin_closed(&self) -> bool {
        self.shared.stdin_closed.load(Ordering::Relaxed)
    }

    async fn data(&self, stream: Option<u32>, payload: &[u8]) -> Result<(), Broken> {
        let Some(stream) = stream else {
            return Ok(());
        };
        for chunk in payload.chunks(BUFFER_BYTES) {
            // the writer ends after this
            let _ = self.frames.send(spdy::data(stream, false, chunk)?).await;
        }
        Ok(())
    }

    async fn close_stdin(&self) -> Result<(), Broken> {
        let was_closed = self.shared.stdin_closed.swap(true, Ordering::Relaxed);
        if let Some(stdin) = self.stdin.filter(|_| !was_closed) {
            let _ = self.frames.send(spdy::data(stdin, true, &[])?).await;
        }
        Ok(())
    }
}

/// From the runtime to the client.
struct Output<'a, C, R> {
    from_runtime: ReadHalf<R>,
    to_client: &'a mut ToClient<C>,
    replies: mpsc::Sender<Vec<u8>>,
    table: Table,
    /// Content of the error stream.
    message: Vec<u8>,
    shared: &'a Shared<'a>,
}

impl<C, R> Output<'_, C, R>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite,
{
    async fn pass(mut self) -> Ended {
        while !self.table.is_complete() {
            match self.frame().await {
                Ok(()) => self.shared.activity.touch(),
                Err(OutputError::Client) => return Ended::Client,
                // the output may be complete
                Err(OutputError::Runtime(Broken::Io(_))) if !self.message.is_empty() => break,
                Err(OutputError::Runtime(error)) => return error.into(),
            }
        }
        Ended::Command(Status::from_message(&self.message))
    }

    async fn frame(&mut self) -> Result<(), OutputError> {
        let mut bytes = [0; spdy::HEAD_BYTES];
        self.read(&mut bytes).await?;
        match spdy::head(bytes).map_err(Broken::from)? {
            Head::Data {
                stream,
                is_last,
                length,
            } => {
                self.data(stream, length).await?;
                if is_last {
                    self.end(stream)?;
                }
                Ok(())
            }
            Head::Control {
                kind,
                is_last,
                length,
            } => {
                let mut payload = vec![0; length];
                self.read(&mut payload).await?;
                let control = spdy::control(kind, is_last, &payload).map_err(Broken::from)?;
                Ok(self.control(control)?)
            }
        }
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), Broken> {
        let read = self.from_runtime.read_exact(bytes).await;
        read.map(drop).map_err(Broken::Io)
    }

    /// Passes the payload on in parts, so that the frame length is not limited.
    async fn data(&mut self, stream: u32, length: usize) -> Result<(), OutputError> {
        let channel = self.table.channel(stream);
        let mut rest = length;
        let mut buffer = vec![0; rest.min(BUFFER_BYTES)];
        while rest > 0 {
            let part = buffer.get_mut(..rest.min(BUFFER_BYTES));
            let part = part.unwrap_or_default();
            self.from_runtime
                .read_exact(part)
                .await
                .map_err(Broken::Io)?;
            rest -= part.len();
            self.shared.activity.touch();
            match channel {
                Some(channel @ (STDOUT | STDERR)) => {
                    let sent = send(self.to_client, channel, part).await;
                    sent.map_err(|ClientGone| OutputError::Client)?;
                }
                Some(ERROR) if self.message.len() + part.len() > MAX_STATUS_BYTES => {
                    return Err(Broken::LongStatus(MAX_STATUS_BYTES).into());
                }
                Some(ERROR) => self.message.extend_from_slice(part),
                _ => {}
            }
        }
        Ok(())
    }

    fn control(&mut self, control: Control) -> Result<(), Broken> {
        match control {
            Control::Open(stream) => self.reply(spdy::rejection(stream)?),
            Control::Ping(number) => self.reply(spdy::ping(number)?),
            Control::Reply { stream, is_last } => {
                if let Some(stream) = self.table.stream(stream) {
                    stream.is_accepted = true;
                }
                if self.table.is_accepted() {
                    self.shared.accepted.notify_one();
                }
                match is_last {
                    true => self.end(stream),
                    false => Ok(()),
                }
            }
            Control::Reset(stream) => match self.table.stream(stream) {
                Some(stream) if !stream.is_accepted => {
                    Err(Broken::Rejected(stream_type(stream.channel)))
                }
                _ => self.end(stream),
            },
            Control::Other => Ok(()),
        }
    }

    /// Handles the end of the runtime's half of a stream; also closes the client's half of stdin.
    fn end(&mut self, stream: u32) -> Result<(), Broken> {
        let Some(ended) = self.table.stream(stream) else {
            return Ok(());
        };
        ended.is_ended = true;
        let is_stdin = ended.channel == STDIN;
        if is_stdin && !self.shared.stdin_closed.swap(true, Ordering::Relaxed) {
            self.reply(spdy::data(stream, true, &[])?)?;
        }
        Ok(())
    }

    /// Sends a frame ahead of stdin, which may block until the command reads it.
    fn reply(&mut self, frame: Vec<u8>) -> Result<(), Broken> {
        self.replies.try_send(frame).map_err(|_| Broken::Replies)
    }
}

enum OutputError {
    Client,
    Runtime(Broken),
}

impl From<Broken> for OutputError {
    fn from(error: Broken) -> Self {
        Self::Runtime(error)
    }
}

/// Writes frames, replies first, until the channels close. Write errors are ignored: what the
/// runtime has sent is read to its end.
async fn write<R>(
    mut to_runtime: WriteHalf<R>,
    mut urgent: mpsc::Receiver<Vec<u8>>,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) where
    R: AsyncRead + AsyncWrite,
{
    let mut is_broken = false;
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = urgent.recv() => frame,
            Some(frame) = waiting.recv() => frame,
            else => return,
        };
        if is_broken {
            continue;
        }
        let written = async {
            to_runtime.write_all(&frame).await?;
            to_runtime.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "streaming server does not read input");
            is_broken = true;
        }
    }
}
