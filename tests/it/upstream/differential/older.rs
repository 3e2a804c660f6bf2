//! The requests that older API servers answer in another way, so that they are not compared there.

use crate::upstream::differential::table;
use crate::upstream::differential::table::Row;

/// The first minor version of Kubernetes 1 with shards in the API server.
const SHARDS: u32 = 36;
/// The first minor version that serves PodCertificateRequests in the version of the tables.
const POD_CERTIFICATES: u32 = 35;

/// What an API server answers in another way, up to a minor version of Kubernetes 1.
struct Difference {
    until: u32,
    reason: &'static str,
    concerns: fn(&Row) -> bool,
}

const DIFFERENCES: [Difference; 4] = [
    Difference {
        until: 36,
        reason: "ResourceSlices have the selectable field spec.pool.name since 1.37",
        concerns: |row| {
            row.path().ends_with("/resourceslices") && row.target.contains("spec.pool.name")
        },
    },
    Difference {
        until: 36,
        reason: "pages of a shard have no remainingItemCount since 1.37",
        concerns: |row| has_shard(row) && row.parameter("limit").is_some(),
    },
    Difference {
        until: SHARDS - 1,
        reason: "an older API server ignores the parameter shardSelector",
        concerns: has_shard,
    },
    Difference {
        until: POD_CERTIFICATES - 1,
        reason: "an older API server serves PodCertificateRequests in v1alpha1 only",
        concerns: |row| is_pod_certificate(row.path()),
    },
];

/// Flags that enable shards, and kinds with field selectors that an API server of this minor
/// version does not serve by default.
pub(super) fn server_flags(minor: u32) -> Vec<String> {
    let mut gates = vec!["ClusterTrustBundle=true", "PodCertificateRequest=true"];
    let mut resources = vec!["certificates.k8s.io/v1beta1/clustertrustbundles=true"];
    if minor >= POD_CERTIFICATES {
        resources.push("certificates.k8s.io/v1beta1/podcertificaterequests=true");
    }
    if minor >= SHARDS {
        gates.push("ShardedListAndWatch=true");
    }
    vec![
        format!("--feature-gates={}", gates.join(",")),
        format!("--runtime-config={}", resources.join(",")),
    ]
}

/// Returns true if an API server of this minor version serves the collection of `path`.
pub(super) fn is_served(path: &str, minor: u32) -> bool {
    minor >= POD_CERTIFICATES || !is_pod_certificate(path)
}

/// Returns the rows that an API server of this minor version answers as the newest version does,
/// and why the other rows are left out.
pub(super) fn without_differences(mut rows: Vec<Row>, minor: u32) -> (Vec<Row>, Vec<String>) {
    let mut left_out = Vec::new();
    for difference in DIFFERENCES.iter().filter(|known| minor <= known.until) {
        let before = rows.len();
        rows.retain(|row| !(difference.concerns)(row));
        let (count, reason) = (before - rows.len(), difference.reason);
        left_out.push(format!("{count} rows are not compared: {reason}"));
    }
    (rows, left_out)
}

fn has_shard(row: &Row) -> bool {
    row.parameter("shardSelector").is_some()
}

fn is_pod_certificate(path: &str) -> bool {
    path.contains("/podcertificaterequests")
}

#[test]
fn each_difference_leaves_out_a_few_rows() {
    let left = |minor| {
        let rows: Vec<_> = super::TABLES.into_iter().flat_map(table::rows).collect();
        let (rows, reasons) = without_differences(rows, minor);
        assert!(
            reasons.iter().all(|reason| !reason.starts_with("0 ")),
            "{reasons:?}"
        );
        (rows.len(), reasons.len())
    };
    let (all, reasons) = left(37);
    assert_eq!(reasons, 0);
    for (minor, expected) in [(36, 2), (35, 3), (34, 4)] {
        let (rows, reasons) = left(minor);
        assert!((all * 9 / 10..all).contains(&rows), "{rows} of {all}");
        assert_eq!(reasons, expected, "{minor}");
    }
}
