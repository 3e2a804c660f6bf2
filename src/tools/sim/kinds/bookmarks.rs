//! Templates for bookmarks. The API server encodes the object of a bookmark as an empty object of
//! its kind, and some fields of that object are always present.

use bytes::Bytes;
use kubefan_core::api::WireFormat;
use kubefan_core::codec::BookmarkTemplate;

use super::builtin::Kind;

/// A kind per line, and the fields after `metadata` of an empty object of this kind.
const EMPTY: &str = r#"CronJob "spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}
CustomResourceDefinition "spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}
DaemonSet "spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}},"status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}
Deployment "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}
EndpointSlice "addressType":"","endpoints":null,"ports":null
Event "involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""
Job "spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}
Lease "spec":{}
Namespace "spec":{},"status":{}
Node "spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}
PersistentVolumeClaim "spec":{"resources":{}},"status":{}
Pod "spec":{"containers":null},"status":{}
ReplicaSet "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}
Service "spec":{},"status":{"loadBalancer":{}}
StatefulSet "spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}"#;

/// Returns the bookmark template of `kind`; `None` if an empty object
/// of the kind has only metadata.
///
/// # Panics
///
/// Never: the table contains valid JSON.
pub(crate) fn template(kind: &Kind) -> Option<BookmarkTemplate> {
    let resource = &kind.resource;
    let mut built_in = EMPTY.lines().filter(|_| !kind.is_custom);
    let name = &resource.kind;
    let rest = built_in.find_map(|line| line.strip_prefix(name.as_str())?.strip_prefix(' '))?;
    let version = resource.gvr.api_version();
    let frame = format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{name}\",\"apiVersion\":\"{version}\",\
         \"metadata\":{{\"resourceVersion\":\"0\"}},{rest}}}}}\n"
    );
    let template = BookmarkTemplate::from_frame(WireFormat::Json, &Bytes::from(frame));
    Some(template.expect("a frame of JSON with a version"))
}
