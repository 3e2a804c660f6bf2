//! Fetches the API server's resources, and whether they are built-in, custom or aggregated.

mod documents;
mod rest_mapper;
mod suggestions;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::GroupVersionResource;
use crate::upstream::Client;
use crate::upstream::Error;
use crate::upstream::Identity;
use crate::upstream::answer;
use crate::upstream::client;

use documents::ApiGroupDiscoveryList;
use documents::ApiGroupList;
use documents::ApiResourceList;
use documents::ApiService;
use documents::ApiVersions;
use documents::CustomResourceDefinition;
use documents::DiscoveredResources;
use documents::ObjectList;
use rest_mapper::CustomResource;
use rest_mapper::GroupVersion;

pub use rest_mapper::DiscoveryChanges;
pub use rest_mapper::NotCacheable;
pub use rest_mapper::RestMapper;
pub use rest_mapper::UnknownResource;
pub(crate) use suggestions::closest;

const AGGREGATED_MEDIA_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// CustomResourceDefinitions per page; they contain schemas, so a page has some megabytes.
const DEFINITIONS_PAGE: u32 = 100;
/// The largest discovery document, in bytes, that is read.
const DOCUMENT_LIMIT: usize = 64 << 20;
/// Number of group-versions fetched concurrently if discovery is not aggregated.
const CONCURRENT_GROUP_VERSIONS: usize = 8;

/// The functions that discover the resources and version of an API server.
#[derive(Debug)]
pub struct Discovery;

impl Discovery {
    /// Fetches all resources with kubefan's identity. If a group-version can't be fetched, only its
    /// resources are missing, and [`RestMapper::changes`] does not report them as removed.
    ///
    /// # Errors
    /// If the API server can't be reached or refuses discovery. It is not an error if kubefan may
    /// not read APIServices or CustomResourceDefinitions.
    pub async fn fetch(client: &Client) -> Result<RestMapper, Error> {
        let (core, groups, aggregated, custom) = tokio::try_join!(
            core_resources(client),
            group_resources(client),
            aggregated_group_versions(client),
            custom_resources(client),
        )?;
        let DiscoveredResources { resources, unknown } = core.merge(groups);
        Ok(RestMapper::new(resources, aggregated, custom).with_unknown(unknown))
    }

    /// Fetches the API server's version, such as `v1.36.2`.
    ///
    /// # Errors
    /// If `/version` can't be fetched or decoded.
    pub async fn version(client: &Client) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let version: Version = client.get_json("/version").await?;
        Ok(version.git_version)
    }
}

/// A discovery document in the aggregated form, or in the older form `Legacy`.
enum Document<Legacy> {
    Aggregated(ApiGroupDiscoveryList),
    Legacy(Legacy),
}

async fn core_resources(client: &Client) -> Result<DiscoveredResources, Error> {
    match document::<ApiVersions>(client, "/api").await? {
        Document::Aggregated(groups) => Ok(groups.into_discovered()),
        Document::Legacy(ApiVersions { versions }) => {
            let versions = versions.into_iter().map(|version| (String::new(), version));
            legacy_resources(client, versions.collect()).await
        }
    }
}

async fn group_resources(client: &Client) -> Result<DiscoveredResources, Error> {
    match document::<ApiGroupList>(client, "/apis").await? {
        Document::Aggregated(groups) => Ok(groups.into_discovered()),
        Document::Legacy(groups) => legacy_resources(client, groups.group_versions()).await,
    }
}

async fn document<Legacy: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<Document<Legacy>, Error> {
    let request = client::get(path, ACCEPT)?;
    let response = client.request_success(Identity::Kubefan, request).await?;
    let aggregated = is_aggregated(answer::content_type(response.headers()));
    let body = answer::collect(response.into_body(), DOCUMENT_LIMIT).await?;
    let decoded = if aggregated {
        serde_json::from_slice(&body).map(Document::Aggregated)
    } else {
        serde_json::from_slice(&body).map(Document::Legacy)
    };
    decoded.map_err(|error| Error::Decode(error.into()))
}

/// True for the media type of aggregated discovery, with its parameters in any order.
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
    let (group, version) = &group_version;
    let path = match group.as_str() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
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

/// Fetches the aggregated group-versions; `None` if kubefan may not read APIServices.
async fn aggregated_group_versions(
    client: &Client,
) -> Result<Option<HashSet<GroupVersion>>, Error> {
    let services = readable(
        client
            .get_json::<ObjectList<ApiService>>(API_SERVICES)
            .await,
    )?;
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
