//! The user of a request, and what the API server lets this user read.
//!
//! A cache is filled with kubefan's rights, and read by many users. So kubefan finds out the
//! user, and asks the API server whether this user may read what it requests. All answers come
//! from the API server; kubefan only remembers them for some seconds.
//!
//! ```text
//! module         question                                      source of the answer
//! claims         does the request claim an identity?           its headers
//! front_proxy    whom does an authenticating proxy name?       headers, if its certificate is good
//! certificates   whom does a client certificate name?          the authorities
//! proofs         (asks both, and again when the authorities change)
//! authenticator  which user does a token have?                 SelfSubjectReview or TokenReview
//! authorizer     may this user read that?                      SelfSubjectAccessReview or
//!                                                              SubjectAccessReview
//! authorities    which authorities are good?                   files, or what the API server publishes
//! deletions      was the account or pod of a token deleted?    caches of clients, if there are any
//! deleted_objects  (remembers them)
//! settling       (says how answers count for a short time after a deletion or a change of roles)
//! rbac           have roles or bindings changed?               informers, if kubefan may watch them
//! open_watches   may the users of open watches still read?     the same reviews, again and again
//! answers        (remembers definite answers, and asks once for callers that wait together)
//! queue          (limits the questions that are in flight, and those that wait)
//! reviews        (sends the reviews)
//! failed_attempts  (limits the failed authentications of an address)
//! config         (how callers are authenticated, and the limits)
//! unaccepted     (limits what is forwarded for callers that the API server has not accepted)
//! ```
//!
//! What is not clear is never guessed: the request is forwarded with the caller's own credentials,
//! and the API server answers it.

mod access_control;
mod answers;
mod attributes;
mod authenticator;
mod authorities;
mod authorizer;
mod caller;
mod certificates;
mod claims;
mod config;
mod deleted_objects;
mod deletions;
mod failed_attempts;
mod front_proxy;
mod metrics;
mod open_watches;
mod proofs;
mod published;
mod queue;
mod rbac;
mod reload;
mod repeated_reviews;
mod reviews;
mod settling;
mod token;
mod unaccepted;
mod user;

pub use access_control::AccessControl;
pub use attributes::Attributes;
pub use authorities::{AuthorityFiles, AuthoritySources, SourceError};
pub use authorizer::Verdict;
pub use caller::{Bearer, Caller, KnownCaller, UserKey};
pub use certificates::{
    AuthoritiesError, CertificateAuthorities, CertificateError, CertificateMemo, CertifiedUser,
};
pub(crate) use claims::{has_credentials, impersonate};
pub use config::{Config, Mode};
pub use front_proxy::{FrontProxy, FrontProxyError, RemoteHeaders};
pub use metrics::Metrics;
pub use open_watches::OpenWatch;
pub use published::{PublishedAuthentication, PublishedError};
pub use reload::{ReadError, WatchedFiles};
pub use unaccepted::UnacceptedPermit;
pub(crate) use unaccepted::is_anonymous;
pub use user::User;
