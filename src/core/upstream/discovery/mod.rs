//! Fetches the API server's resources, and whether they are built-in, custom or aggregated.

mod documents;
mod mappings;
mod rest_mapper;
mod suggestions;
#[cfg(test)]
mod tests;
mod version;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use documents::{
    ApiGroupDiscoveryList, ApiGroupList, ApiResourceList, ApiService, ApiVersions,
    CustomResourceDefinition, DiscoveredResources, ObjectList,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};
pub use mappings::{MappingError, PartialResource};
pub(crate) use rest_mapper::CustomResource;
use rest_mapper::GroupVersion;
pub use rest_mapper::{DiscoveryChanges, NotCacheable, RestMapper, UnknownResource};
use serde::de::DeserializeOwned;
pub use suggestions::closest;
pub use version::PolledVersion;

use crate::api::{GroupVersionResource, Object};
use crate::upstream::{Client, Error, Identity, answer, client};

const AGGREGATED_MEDIA_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// CustomResourceDefinitions per page; they contain schemas, so a page has some megabytes.
const DEFINITIONS_PAGE: u32 = 100;
/// Maximum size in bytes of a discovery document that is read.
const DOCUMENT_LIMIT: usize = 64 << 20;
/// Number of group-versions fetched concurrently if discovery is not aggregated.
const CONCURRENT_GROUP_VERSIONS: usize = 8;

/// Discovers the resources and version of an API server. A document that has not changed since the
/// last fetch is not sent again (`ETag`, RFC 9110 §8.8.3).
pub struct Discovery {
    client: Client,
    core: Option<Tagged>,
    groups: Option<Tagged>,
}

/// A document with its tag.
struct Tagged {
    etag: HeaderValue,
    resources: DiscoveredResources,
}

/// The custom resources that one CustomResourceDefinition defines.
#[derive(Clone, Debug)]
pub struct Definition(Vec<(GroupVersionResource, CustomResource)>);

impl Discovery {
    /// Discovers the resources of the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            core: None,
            groups: None,
        }
    }

    /// Fetches all resources with kubefan's identity. If a group-version can't be fetched, only its
    /// resources are missing, and [`RestMapper::changes`] does not report them as removed.
    ///
    /// `definitions` is called after the other documents have arrived, and returns all
    /// CustomResourceDefinitions if the caller has them. If it returns `None`, or if a document has
    /// a resource that is neither built-in nor defined nor aggregated, the definitions are fetched.
    /// Cancel safe.
    ///
    /// # Errors
    /// If the API server can't be reached or refuses discovery. It is not an error if kubefan may
    /// not read APIServices or CustomResourceDefinitions.
    pub async fn fetch(
        &mut self,
        definitions: impl FnOnce() -> Option<Vec<Arc<Definition>>>,
    ) -> Result<RestMapper, Error> {
        let client = &self.client;
        let (core, groups, aggregated) = tokio::try_join!(
            resources(client, "/api", &mut self.core, ApiVersions::group_versions),
            resources(
                client,
                "/apis",
                &mut self.groups,
                ApiGroupList::group_versions
            ),
            aggregated_group_versions(client),
        )?;
        let DiscoveredResources { resources, unknown } = core.merge(groups);
        let known = definitions().map(|definitions| {
            let resources = definitions
                .iter()
                .flat_map(|definition| definition.resources());
            resources.cloned().collect()
        });
        let mut mapper = RestMapper::new(resources, aggregated, known);
        mapper.unknown = unknown;
        if mapper.may_lack_definitions() {
            mapper.custom = custom_resources(client).await?;
        }
        Ok(mapper)
    }

    /// Returns true if the API server has the resource `gvr` now.
    ///
    /// # Errors
    /// If the API server can't be reached, or refuses to say it.
    pub async fn has(client: &Client, gvr: &GroupVersionResource) -> Result<bool, Error> {
        let group_version = (gvr.group.clone(), gvr.version.clone());
        let path = path_of(&group_version);
        match client.get_json::<ApiResourceList>(&path).await {
            Ok(list) => {
                let resources = list.resources(&group_version);
                Ok(resources.iter().any(|resource| resource.gvr == *gvr))
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Fetches the API server's version, such as `v1.36.2`.
    ///
    /// # Errors
    /// If `/version` can't be fetched or decoded.
    pub async fn version(client: &Client) -> Result<String, Error> {
        Ok(PolledVersion::poll(client).await?.version)
    }
}

impl Definition {
    /// Decodes a CustomResourceDefinition that is stored as JSON.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(object: &Object) -> serde_json::Result<Self> {
        let definition: CustomResourceDefinition = object.decode_json()?;
        Ok(Self(definition.resources()))
    }

    fn resources(&self) -> impl Iterator<Item = &(GroupVersionResource, CustomResource)> {
        self.0.iter()
    }
}

/// Returns the resources of the document at `path`. Fetches it, unless the one in `known` is still
/// current. An aggregated document with an `ETag` is stored in `known`. A document in the older form
/// `Legacy` has `group_versions`, and their resources are fetched separately.
async fn resources<Legacy: DeserializeOwned>(
    client: &Client,
    path: &str,
    known: &mut Option<Tagged>,
    group_versions: fn(Legacy) -> Vec<GroupVersion>,
) -> Result<DiscoveredResources, Error> {
    let mut request = client::get(path, ACCEPT)?;
    if let Some(known) = known {
        let headers = request.headers_mut();
        headers.insert(IF_NONE_MATCH, known.etag.clone());
    }
    let response = client.in_time(client.request(Identity::Kubefan, request));
    let response = response.await?;
    if response.status() == StatusCode::NOT_MODIFIED
        && let Some(known) = known
    {
        return Ok(known.resources.clone());
    }
    let response = answer::success(response).await?;
    let is_aggregated = is_aggregated(answer::content_type(response.headers()));
    let etag = response.headers().get(ETAG).cloned();
    if !is_aggregated {
        let legacy = answer::json(response, DOCUMENT_LIMIT).await?;
        return legacy_resources(client, group_versions(legacy)).await;
    }
    let groups: ApiGroupDiscoveryList = answer::json(response, DOCUMENT_LIMIT).await?;
    let resources = groups.into_discovered();
    *known = etag.map(|etag| Tagged {
        etag,
        resources: resources.clone(),
    });
    Ok(resources)
}

/// Returns true for the media type of aggregated discovery, with its parameters in any order.
fn is_aggregated(content_type: &str) -> bool {
    let given: Vec<_> = content_type.split(';').map(str::trim).collect();
    AGGREGATED_MEDIA_TYPE
        .split(';')
        .all(|part| given.contains(&part))
}

async fn legacy_resources(
    client: &Client,
    group_versions: Vec<GroupVersion>,
) -> Result<DiscoveredResources, Error> {
    let lists = stream::iter(group_versions)
        .map(|group_version| legacy_group_version(client, group_version))
        .buffered(CONCURRENT_GROUP_VERSIONS);
    lists
        .try_fold(DiscoveredResources::default(), async |all, next| {
            Ok(all.merge(next))
        })
        .await
}

/// Fetches the resources of one group-version. They are unknown if the API server's answer is
/// malformed, late, or an error other than 404, for example because an aggregated API server is
/// down.
async fn legacy_group_version(
    client: &Client,
    group_version: GroupVersion,
) -> Result<DiscoveredResources, Error> {
    let path = path_of(&group_version);
    match client.get_json::<ApiResourceList>(&path).await {
        Ok(list) => Ok(DiscoveredResources {
            resources: list.resources(&group_version),
            unknown: HashSet::new(),
        }),
        // The group-version was deleted after the groups were listed.
        Err(error) if error.is_not_found() => Ok(DiscoveredResources::default()),
        Err(
            error @ (Error::Answer { .. }
            | Error::Decode(_)
            | Error::TooLarge { .. }
            | Error::Timeout(_)),
        ) => {
            tracing::warn!(%path, %error, "discovery of a group failed, its resources are unknown");
            Ok(DiscoveredResources {
                resources: Vec::new(),
                unknown: HashSet::from([group_version]),
            })
        }
        Err(error) => Err(error),
    }
}

/// Returns the path of the resources of a group-version.
fn path_of((group, version): &GroupVersion) -> String {
    match group.as_str() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// Fetches the aggregated group-versions; `None` if kubefan may not read APIServices.
async fn aggregated_group_versions(
    client: &Client,
) -> Result<Option<HashSet<GroupVersion>>, Error> {
    let services = client.get_json::<ObjectList<ApiService>>(API_SERVICES);
    let services = readable(services.await)?;
    Ok(services.map(|services| {
        let aggregated = services.items.into_iter().map(|service| service.spec);
        let aggregated = aggregated.filter(|spec| spec.service.is_some());
        aggregated.map(|spec| (spec.group, spec.version)).collect()
    }))
}

/// Fetches the custom resources; `None` if kubefan may not read CustomResourceDefinitions.
async fn custom_resources(
    client: &Client,
) -> Result<Option<HashMap<GroupVersionResource, CustomResource>>, Error> {
    let mut custom = HashMap::new();
    let mut token = String::new();
    loop {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("limit", &DEFINITIONS_PAGE.to_string())
            .append_pair("continue", &token)
            .finish();
        let page = client.get_json(&format!("{DEFINITIONS}?{query}")).await;
        let page: ObjectList<CustomResourceDefinition> = match readable(page)? {
            Some(page) => page,
            None => return Ok(None),
        };
        let resources = page.items.into_iter().flat_map(|item| item.resources());
        custom.extend(resources);
        token = page.metadata.continue_token;
        if token.is_empty() {
            return Ok(Some(custom));
        }
    }
}

/// Converts the answers 403 (kubefan may not read the resource) and 404 (there is none) to `None`.
fn readable<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_forbidden() || error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
