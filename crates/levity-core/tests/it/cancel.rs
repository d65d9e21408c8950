use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use levity_core::CancelToken;

/// Counts how often it is woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeCounter {
    fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn wake_counter() -> (Arc<WakeCounter>, Waker) {
    let wake_counter = Arc::new(WakeCounter::default());
    (wake_counter.clone(), Waker::from(wake_counter))
}

#[test]
fn cancelled_returns_at_once_if_already_cancelled() {
    let token = CancelToken::new();
    token.cancel();
    token.cancel();
    assert!(token.is_cancelled());
    let ready = pin!(token.cancelled()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(ready, Poll::Ready(()));
}

#[test]
fn cancel_wakes_every_waiter_once() {
    let token = CancelToken::new();
    let ((first, a), (second, b)) = (wake_counter(), wake_counter());
    let clone = token.clone();
    let (mut one, mut other) = (pin!(token.cancelled()), pin!(clone.cancelled()));
    assert!(one.as_mut().poll(&mut Context::from_waker(&a)).is_pending());
    assert!(
        other
            .as_mut()
            .poll(&mut Context::from_waker(&b))
            .is_pending()
    );
    assert_eq!((first.wakes(), second.wakes()), (0, 0));
    clone.cancel();
    token.cancel();
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    assert!(one.poll(&mut Context::from_waker(&a)).is_ready());
    assert!(other.poll(&mut Context::from_waker(&b)).is_ready());
}

#[test]
fn cancel_wakes_latest_waker() {
    let token = CancelToken::new();
    let ((old, a), (new, b)) = (wake_counter(), wake_counter());
    let mut waiting = pin!(token.cancelled());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&a))
            .is_pending()
    );
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&b))
            .is_pending()
    );
    token.cancel();
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
}

#[test]
fn dropped_waiter_removes_its_waker() {
    let token = CancelToken::new();
    let (wake_counter, waker) = wake_counter();
    let held = Arc::strong_count(&wake_counter);
    for _ in 0..100 {
        let mut waiting = Box::pin(token.cancelled());
        assert!(
            waiting
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert!(
            waiting
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(
            Arc::strong_count(&wake_counter),
            held + 1,
            "one waker per waiter"
        );
        drop(waiting);
        assert_eq!(Arc::strong_count(&wake_counter), held);
    }
    token.cancel();
    assert_eq!(wake_counter.wakes(), 0, "a dropped waiter is not woken");
}

#[test]
fn cancel_drops_all_wakers() {
    let token = CancelToken::new();
    let (wake_counter, waker) = wake_counter();
    let held = Arc::strong_count(&wake_counter);
    let mut waiting = pin!(token.cancelled());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    token.cancel();
    assert_eq!(Arc::strong_count(&wake_counter), held);
}

#[test]
fn waker_can_use_the_token() {
    struct TokenWaker(CancelToken, AtomicUsize);
    impl Wake for TokenWaker {
        fn wake(self: Arc<Self>) {
            // Neither call may find the token locked.
            self.0.cancel();
            let again = pin!(self.0.cancelled()).poll(&mut Context::from_waker(Waker::noop()));
            self.1
                .store(usize::from(again.is_ready()), Ordering::SeqCst);
        }
    }
    let token = CancelToken::new();
    let token_waker = Arc::new(TokenWaker(token.clone(), AtomicUsize::new(0)));
    let waker = Waker::from(token_waker.clone());
    let mut waiting = pin!(token.cancelled());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    token.cancel();
    assert_eq!(token_waker.1.load(Ordering::SeqCst), 1);
}

#[test]
fn guard_cancels_on_drop() {
    let token = CancelToken::new();
    let guard = token.clone().into_guard();
    assert_eq!(format!("{token:?}"), "CancelToken(false)");
    drop(guard);
    assert_eq!(format!("{token:?}"), "CancelToken(true)");
}

#[test]
fn cancel_from_another_thread_is_never_missed() {
    for _ in 0..200 {
        let token = CancelToken::new();
        let clone = token.clone();
        let canceller = std::thread::spawn(move || clone.cancel());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(token.cancelled());
        canceller.join().unwrap();
    }
}
