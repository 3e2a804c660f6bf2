use std::time::Duration;

use futures_util::poll;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, advance, sleep};

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_too_long_fails() {
    let (near, _far) = duplex(4);
    let (mut io, _upgraded) = WriteTimeout::new(near, LIMIT);
    let start = Instant::now();
    let error = io.write_all(b"more than four").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(start.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_byte_now_and_then_prevents_the_timeout() {
    let (near, mut far) = duplex(1);
    let (mut io, _upgraded) = WriteTimeout::new(near, LIMIT);
    let reader = tokio::spawn(async move {
        let mut read = Vec::new();
        for _ in 0..5 {
            sleep(LIMIT - Duration::from_secs(1)).await;
            read.push(far.read_u8().await.unwrap());
        }
        read
    });
    io.write_all(b"slow").await.unwrap();
    io.write_all(b"!").await.unwrap();
    assert_eq!(reader.await.unwrap(), b"slow!");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_pending_writes_never_times_out() {
    let (near, mut far) = duplex(4);
    let (mut io, _upgraded) = WriteTimeout::new(near, LIMIT);
    io.write_all(b"four").await.unwrap();
    advance(100 * LIMIT).await;
    far.read_exact(&mut [0; 4]).await.unwrap();
    io.write_all(b"five").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_never_times_out() {
    let (near, mut far) = duplex(4);
    let (mut io, upgraded) = WriteTimeout::new(near, LIMIT);
    upgraded.set();
    let writer = tokio::spawn(async move { io.write_all(b"eightbyt").await });
    sleep(100 * LIMIT).await;
    far.read_exact(&mut [0; 8]).await.unwrap();
    writer.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_upgrade_lifts_the_kernels_limit_at_the_next_read_or_write() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for writes in [false, true] {
        let _peer = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (near, _) = listener.accept().await.unwrap();
        SockRef::from(&near)
            .set_tcp_user_timeout(Some(LIMIT))
            .unwrap();
        let (mut io, upgraded) = WriteTimeout::new(near, LIMIT);
        let limit = |io: &WriteTimeout<TcpStream>| SockRef::from(&io.io).tcp_user_timeout();
        io.write_all(b"before").await.unwrap();
        assert_eq!(limit(&io).unwrap(), Some(LIMIT));
        upgraded.set();
        if writes {
            io.write_all(b"output").await.unwrap();
        } else {
            let reading = std::pin::pin!(io.read_u8());
            assert!(poll!(reading).is_pending());
        }
        assert_eq!(limit(&io).unwrap(), None, "writes: {writes}");
    }
}
