//! Asks the API server again about the users of open watches.

use std::sync::Arc;

use super::Attributes;
use super::asking::reviews::{Judgement, TokenOwner};
use super::callers::caller::{KnownCaller, KnownUser};
use super::open_watches::{Asking, Reviews};
use super::rights::authorizer::Authorizer;
use super::tokens::token::Token;

/// Asks the API server even if an answer is remembered, and remembers the new answer: a user that
/// has lost a right must not read from a cache because of an older yes.
impl Reviews for Arc<Authorizer> {
    fn judge(&self, caller: &Arc<KnownCaller>, attributes: &Arc<Attributes>) -> Asking<Judgement> {
        let (authorizer, caller) = (Arc::clone(self), Arc::clone(caller));
        let attributes = Arc::clone(attributes);
        Box::pin(async move { authorizer.judge_again(&caller, attributes).await })
    }

    fn covers_names(&self, caller: &KnownCaller) -> bool {
        self.names.cover(caller.user())
    }

    fn confirm_names(&self, caller: &Arc<KnownCaller>) -> Asking<Option<bool>> {
        let (authorizer, caller) = (Arc::clone(self), Arc::clone(caller));
        Box::pin(async move { authorizer.names.confirmed(caller.user()).await })
    }

    fn check(&self, token: &Token) -> Asking<TokenOwner<Arc<KnownUser>>> {
        let (authenticator, token) = (Arc::clone(&self.authenticator), token.clone());
        Box::pin(async move { authenticator.check_again(&token).await })
    }
}
