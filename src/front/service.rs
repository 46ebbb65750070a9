//! A hyper service from a cloneable context and an async function.

use std::future::Future;
use std::pin::Pin;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::Service;

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

#[derive(Clone)]
pub(super) struct AsyncService<C, F> {
    context: C,
    serve: F,
}

impl<C, F> AsyncService<C, F> {
    pub(super) fn new(context: C, serve: F) -> Self {
        Self { context, serve }
    }
}

impl<C, F, R, E, Fut> Service<Request<Incoming>> for AsyncService<C, F>
where
    C: Clone,
    F: Fn(C, Request<Incoming>) -> Fut,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
{
    type Response = R;
    type Error = E;
    type Future = Answering<R, E>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin((self.serve)(self.context.clone(), request))
    }
}
