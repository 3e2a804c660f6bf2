//! The resources that are cached from the start, and the rules for all of them.

use std::sync::Arc;

use anyhow::Context;
use kubefan_core::api::{GroupVersionResource, WireFormat};
use kubefan_core::informer::{InformerSet, LiveRestMapper, Requirement, ResourceRule};
use kubefan_core::upstream::{NotCacheable, RestMapper};

use crate::config::{Resources, ServeConfig};

/// Returns the resources that are cached from the start.
pub(super) fn resources_to_cache(
    resources: &Resources,
    rest_mapper: &LiveRestMapper,
) -> anyhow::Result<Vec<GroupVersionResource>> {
    let all = |mapper: &RestMapper| -> Vec<GroupVersionResource> {
        let resources = mapper.resources();
        resources.map(|resource| resource.gvr.clone()).collect()
    };
    Ok(match resources {
        Resources::Named(names) => find_named(rest_mapper, names)?,
        Resources::All => {
            let mut all = rest_mapper.with(all);
            // Events are many, and change often: they are cached when a client reads them.
            all.retain(|gvr| !gvr.is_events() && rest_mapper.cacheable(gvr).is_ok());
            all
        }
    })
}

/// Requires that `found`, the resources that are cached from the start, are cached, and starts
/// their informers: for each resource one for JSON, and one for protobuf unless the resource is a
/// custom one.
pub(super) fn require_configured(
    need: Requirement,
    found: Vec<GroupVersionResource>,
    rest_mapper: &LiveRestMapper,
    informers: &InformerSet,
) {
    for gvr in found {
        for format in [WireFormat::Json, WireFormat::Protobuf] {
            let spec = rest_mapper.known_informer_spec(&gvr, format);
            let spec = spec.filter(|spec| format == WireFormat::Json || !spec.custom);
            if let Some(spec) = spec {
                informers.require(&spec, need);
            }
        }
    }
    rest_mapper.pin_required(informers);
}

/// Applies the rules of the configuration to the discovered resources, and checks the rules.
pub(super) fn with_rules(
    discovered: LiveRestMapper,
    config: &ServeConfig,
) -> anyhow::Result<Arc<LiveRestMapper>> {
    let mut rest_mapper = discovered.with_rules(config.rules.clone());
    if !config.cache_secrets {
        rest_mapper = rest_mapper.excluding("", "secrets");
    }
    check_rules(config, &rest_mapper)?;
    Ok(Arc::new(rest_mapper))
}

/// Checks that each rule fits its resource, and that no resource has two rules.
pub(super) fn check_rules(
    config: &ServeConfig,
    rest_mapper: &LiveRestMapper,
) -> anyhow::Result<()> {
    let rules = &config.rules;
    rest_mapper.with(|mapper| {
        for name in rules.unknown_never(mapper) {
            warn_of_unknown("cache.never", name, mapper);
        }
        for name in config.informer.freshness.unknown(mapper) {
            warn_of_unknown("cache.freshness", name, mapper);
        }
    });
    let mut seen: Vec<(GroupVersionResource, &str)> = Vec::new();
    for ResourceRule { resource: name, .. } in &rules.rules {
        let found = rest_mapper.with(|mapper| mapper.find(name).map(|found| found.gvr.clone()));
        // An unknown resource may be defined later.
        let Ok(gvr) = found else { continue };
        let context = || format!("cache.resources: {name}");
        rest_mapper.check_rule(&gvr).with_context(context)?;
        if let Some((_, other)) = seen.iter().find(|(known, _)| *known == gvr) {
            return Err(anyhow::anyhow!("{other} is the same resource")).with_context(context);
        }
        seen.push((gvr, name));
    }
    Ok(())
}

/// Logs that the setting names a resource that the API server does not have. The API server may
/// have it later.
fn warn_of_unknown(setting: &str, name: &str, mapper: &RestMapper) {
    let similar = match mapper.find(name) {
        // The setting needs the plural.
        Ok(found) => found.gvr.group_resource(),
        Err(unknown) => unknown.suggestions.join(", "),
    };
    let did_you_mean = Some(similar.as_str()).filter(|similar| !similar.is_empty());
    tracing::warn!(
        name,
        did_you_mean,
        "{setting}: the API server has no such resource now"
    );
}

fn find_named(
    rest_mapper: &LiveRestMapper,
    names: &[String],
) -> anyhow::Result<Vec<GroupVersionResource>> {
    let find = |name: &String| -> anyhow::Result<_> {
        let context = || format!("--resource {name}");
        let found = rest_mapper.with(|mapper| mapper.find(name).map(|found| found.gvr.clone()));
        let gvr = found.with_context(context)?;
        match rest_mapper.cacheable(&gvr) {
            // Only Secrets are ever excluded.
            Err(NotCacheable::Excluded) => Err(anyhow::anyhow!(
                "it is cached over TLS only with --cache-secrets"
            )),
            cacheable => cacheable.map_err(anyhow::Error::new),
        }
        .with_context(context)?;
        Ok(gvr)
    };
    names.iter().map(find).collect()
}
