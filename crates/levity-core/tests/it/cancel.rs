use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use levity_core::CancelToken;

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn bell() -> (Arc<Bell>, Waker) {
    let bell = Arc::new(Bell::default());
    (bell.clone(), Waker::from(bell))
}

#[test]
fn cancelled_before_it_does_not_wait() {
    let token = CancelToken::new();
    token.cancel();
    token.cancel();
    assert!(token.is_cancelled());
    let ready = pin!(token.cancelled()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(ready, Poll::Ready(()));
}

#[test]
fn every_waiter_is_woken_once() {
    let token = CancelToken::new();
    let ((first, a), (second, b)) = (bell(), bell());
    let clone = token.clone();
    let (mut one, mut other) = (pin!(token.cancelled()), pin!(clone.cancelled()));
    assert!(one.as_mut().poll(&mut Context::from_waker(&a)).is_pending());
    assert!(
        other
            .as_mut()
            .poll(&mut Context::from_waker(&b))
            .is_pending()
    );
    assert_eq!((first.rings(), second.rings()), (0, 0));
    clone.cancel();
    token.cancel();
    assert_eq!((first.rings(), second.rings()), (1, 1));
    assert!(one.poll(&mut Context::from_waker(&a)).is_ready());
    assert!(other.poll(&mut Context::from_waker(&b)).is_ready());
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    let token = CancelToken::new();
    let ((old, a), (new, b)) = (bell(), bell());
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
    assert_eq!((old.rings(), new.rings()), (0, 1));
}

#[test]
fn a_waiter_that_is_dropped_leaves_no_waker_behind() {
    let token = CancelToken::new();
    let (bell, waker) = bell();
    let held = Arc::strong_count(&bell);
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
            Arc::strong_count(&bell),
            held + 1,
            "one waker is kept for one waiter"
        );
        drop(waiting);
        assert_eq!(Arc::strong_count(&bell), held);
    }
    token.cancel();
    assert_eq!(bell.rings(), 0, "whoever has left is not woken");
}

#[test]
fn wakers_are_let_go_when_it_is_cancelled() {
    let token = CancelToken::new();
    let (bell, waker) = bell();
    let held = Arc::strong_count(&bell);
    let mut waiting = pin!(token.cancelled());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    token.cancel();
    assert_eq!(Arc::strong_count(&bell), held);
}

#[test]
fn a_waker_may_use_the_token() {
    struct Nosy(CancelToken, AtomicUsize);
    impl Wake for Nosy {
        fn wake(self: Arc<Self>) {
            // Neither may find the token locked.
            self.0.cancel();
            let again = pin!(self.0.cancelled()).poll(&mut Context::from_waker(Waker::noop()));
            self.1
                .store(usize::from(again.is_ready()), Ordering::SeqCst);
        }
    }
    let token = CancelToken::new();
    let nosy = Arc::new(Nosy(token.clone(), AtomicUsize::new(0)));
    let waker = Waker::from(nosy.clone());
    let mut waiting = pin!(token.cancelled());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    token.cancel();
    assert_eq!(nosy.1.load(Ordering::SeqCst), 1);
}

#[test]
fn a_guard_cancels_when_it_is_dropped() {
    let token = CancelToken::new();
    let guard = token.clone().into_guard();
    assert_eq!(format!("{token:?}"), "CancelToken(false)");
    drop(guard);
    assert_eq!(format!("{token:?}"), "CancelToken(true)");
}

#[test]
fn a_cancel_from_another_thread_is_never_missed() {
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
