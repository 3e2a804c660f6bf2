//! What the answer to a request shows of stored objects. Later reads in the user's session must show
//! at least this state. A pure function of the request.

use crate::server::request::{RequestInfo, Verb};

/// What the answer shows of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) on: Affected,
    pub(super) shown_by: ShownBy,
}

/// A resource that a request affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// The resource in the request's path.
    Own,
    Pods,
    PodDisruptionBudgets,
}

/// Where the version of the shown state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownBy {
    /// In the object of a successful answer.
    Object,
    /// In the object of a successful answer, if something still keeps the object.
    Deletion,
    /// In the object of a successful answer, if it has a version. Nothing was changed.
    DryRun,
    /// Nowhere.
    Nothing,
}

/// The subresources that change no stored object.
const CONNECTIONS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Returns the effects of a write. Those on resources without sessions are included.
pub(super) fn effects_of_write(info: &RequestInfo, is_dry_run: bool) -> Vec<Effect> {
    let effect = |on, shown_by| Effect { on, shown_by };
    let own = |shown_by| vec![effect(Affected::Own, shown_by)];
    let subresource = info.subresource.as_str();
    if !info.is_resource_request || CONNECTIONS.contains(&subresource) {
        return Vec::new();
    }
    match info.verb {
        Verb::Proxy => Vec::new(),
        _ if is_dry_run => own(ShownBy::DryRun),
        Verb::Create if info.group.is_empty() && info.resource == "bindings" => {
            vec![effect(Affected::Pods, ShownBy::Nothing)]
        }
        Verb::Create if subresource == "eviction" => vec![
            effect(Affected::Pods, ShownBy::Nothing),
            effect(Affected::PodDisruptionBudgets, ShownBy::Nothing),
        ],
        Verb::Create if subresource.is_empty() => own(ShownBy::Object),
        Verb::Update | Verb::Patch => own(ShownBy::Object),
        Verb::Delete if subresource.is_empty() => own(ShownBy::Deletion),
        _ => own(ShownBy::Nothing),
    }
}

/// Returns the effect of a read that the API server answers; `None` if it has none.
pub(super) fn effect_of_read(info: &RequestInfo) -> Option<Effect> {
    let shown_by = match info.verb {
        _ if !info.is_resource_request || CONNECTIONS.contains(&info.subresource.as_str()) => {
            return None;
        }
        Verb::Get => ShownBy::Object,
        Verb::List => ShownBy::Nothing,
        _ => return None,
    };
    Some(Effect {
        on: Affected::Own,
        shown_by,
    })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn effects(method: &str, path: &str) -> Vec<(Affected, ShownBy)> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let info = RequestInfo::parse(&method, path, query);
        let effects = effects_of_write(&info, query.contains("dryRun"));
        let effects = effects.into_iter();
        effects.map(|effect| (effect.on, effect.shown_by)).collect()
    }

    #[test]
    fn each_write_shows_what_it_can_have_changed() {
        use Affected::{Own, PodDisruptionBudgets, Pods};
        use ShownBy::{Deletion, DryRun, Nothing, Object};
        const PODS: &str = "/api/v1/namespaces/n/pods";
        for (method, path, expected) in [
            ("POST", "", vec![(Own, Object)]),
            ("POST", "?dryRun=All", vec![(Own, DryRun)]),
            ("PUT", "/p", vec![(Own, Object)]),
            ("PUT", "/p/status", vec![(Own, Object)]),
            ("PATCH", "/p", vec![(Own, Object)]),
            ("PATCH", "/p/ephemeralcontainers", vec![(Own, Object)]),
            ("PATCH", "/p?dryRun=All", vec![(Own, DryRun)]),
            ("DELETE", "/p", vec![(Own, Deletion)]),
            ("DELETE", "", vec![(Own, Nothing)]),
            ("POST", "/p/binding", vec![(Own, Nothing)]),
            (
                "POST",
                "/p/eviction",
                vec![(Pods, Nothing), (PodDisruptionBudgets, Nothing)],
            ),
            ("POST", "/p/unknown", vec![(Own, Nothing)]),
            ("POST", "/p/exec", vec![]),
            ("POST", "/p/attach", vec![]),
            ("POST", "/p/portforward", vec![]),
            ("PUT", "/p/proxy/x", vec![]),
            ("DELETE", "/p/proxy/x", vec![]),
        ] {
            assert_eq!(
                effects(method, &format!("{PODS}{path}")),
                expected,
                "{method} {path}"
            );
        }
        for (method, path, expected) in [
            (
                "POST",
                "/api/v1/namespaces/n/bindings",
                vec![(Pods, Nothing)],
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                vec![(Own, Object)],
            ),
            ("PUT", "/api/v1/namespaces/n/finalize", vec![(Own, Object)]),
            (
                "POST",
                "/api/v1/namespaces/n/serviceaccounts/s/token",
                vec![],
            ),
            ("POST", "/api/v1/proxy/namespaces/n/pods/p", vec![]),
            ("POST", "/logs/x", vec![]),
        ] {
            assert_eq!(effects(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_forwarded_read_shows_an_object_or_any_state() {
        for (path, query, expected) in [
            ("/api/v1/namespaces/n/pods/p", "", Some(ShownBy::Object)),
            (
                "/api/v1/namespaces/n/pods/p/status",
                "",
                Some(ShownBy::Object),
            ),
            ("/api/v1/namespaces/n/pods/p/log", "", None),
            ("/api/v1/pods", "", Some(ShownBy::Nothing)),
            ("/api/v1/pods", "watch=1", None),
            ("/apis", "", None),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, query);
            let found = effect_of_read(&info).map(|effect| effect.shown_by);
            assert_eq!(found, expected, "{path}?{query}");
        }
    }
}
