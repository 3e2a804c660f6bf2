//! The user of a request, and what the API server lets this user read.
//!
//! A cache is filled with kubefan's rights, and read by many users. So kubefan finds out the user
//! of a request, and asks the API server whether this user may read what is requested. All answers
//! come from the API server; kubefan only remembers them for some seconds.
//!
//! ```text
//! module           question                                      source of the answer
//! identification   which user has sent a request?                certificates and tokens
//! callers/
//!   claims         does the request claim an identity?           its headers
//!   impersonated   whom may a caller impersonate?                the rights of the caller
//!   unaccepted     (limits what is forwarded for callers that the API server has not accepted)
//! certificates/
//!   users          whom does a client certificate name?          the authorities
//!   front_proxy    whom does an authenticating proxy name?       headers, if its certificate is good
//!   authorities    which authorities are good?                   files, or what the API server publishes
//! proofs           (asks users and front_proxy, and again when the authorities change)
//! tokens/
//!   authenticator  which user does a token have?                 SelfSubjectReview or TokenReview
//!   deletions      was the account or pod of a token deleted?    caches of clients, if there are any
//!   deleted_objects  (remembers them)
//! rights/
//!   authorizer     may this user read that?                      SelfSubjectAccessReview or
//!                                                                SubjectAccessReview
//!   covered_names  does a right to all names cover each name?    SelfSubjectRulesReview
//! rbac/            have roles or bindings changed?               informers, if kubefan may watch them
//! open_watches/    may the users of open watches still read?     the same reviews, again and again
//! asking/
//!   answers        (remembers definite answers, and asks once for callers that wait together)
//!   queue          (limits the questions that are in flight, and those that wait)
//!   reviews        (sends the reviews)
//!   failed_attempts  (limits the failed authentications of an address)
//!   settling       (remembers recent changes, and says how answers count after them)
//! config           (how callers are authenticated, and the limits)
//! ```
//!
//! kubefan never guesses an answer that is not clear: the request is then forwarded with the
//! caller's own credentials, and the API server answers it.

mod access_control;
mod asking;
mod callers;
mod certificates;
mod config;
mod identification;
mod metrics;
mod open_watches;
mod proofs;
mod rbac;
mod repeated_reviews;
mod rights;
mod tokens;

pub use access_control::AccessControl;
pub use callers::caller::{Bearer, Caller, KnownCaller, UserKey};
pub use callers::claims::is_secret_header;
pub(crate) use callers::claims::{add_impersonation, has_credentials, impersonate};
pub use callers::impersonated::ImpersonatedUser;
pub use callers::unaccepted::UnacceptedPermit;
pub(crate) use callers::unaccepted::is_anonymous;
pub use callers::user::User;
pub use certificates::authorities::{AuthorityFiles, AuthoritySources};
pub use certificates::certificate::CertificateError;
pub use certificates::front_proxy::{FrontProxy, FrontProxyError, RemoteHeaders};
pub use certificates::published::PublishedAuthentication;
pub use certificates::reload::WatchedFiles;
pub use certificates::users::{CertificateAuthorities, CertificateMemo, CertifiedUser};
pub use config::{Config, Mode};
pub use metrics::Metrics;
pub use open_watches::OpenWatch;
pub use rights::attributes::Attributes;
pub use rights::authorizer::Verdict;
