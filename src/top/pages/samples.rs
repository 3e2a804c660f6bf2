//! What a kubefan may show, for tests.

use serde_json::json;

use super::reading::{Page, Reading};

/// Returns what a kubefan with all pages shows.
pub(crate) fn reading() -> Reading {
    let pods = json!({
        "group": "", "version": "v1", "resource": "pods", "format": "protobuf", "content": "whole",
    });
    let part = json!({
        "group": "apps", "version": "v1", "resource": "deployments", "format": "json",
        "content": "metadata", "namespace": "shop", "labelSelector": "app=\u{1b}[2Jweb",
    });
    let snapshot = json!({
        "time": "2026-11-28T10:00:00.000Z",
        "version": "0.2.0",
        "caches": {
            "upstreamResponding": true,
            "total": 2,
            "items": [
                {
                    "cache": pods, "state": "live", "activity": "watching",
                    "activitySeconds": 90.5, "onDemand": false, "appliedVersion": "1234",
                    "objects": 12_345, "objectBytes": 3 << 20,
                    "eventLog": {"events": 10, "bytes": 2_048, "spanSeconds": 300.0},
                    "watchers": 7, "selections": 3, "queueBytes": 0, "lastChangeSeconds": 0.4,
                    "watchAgeSeconds": 1.0, "eventsTotal": 400, "sentEventsTotal": 2_800,
                    "listsTotal": 1, "epochsTotal": 0,
                },
                {
                    "cache": part, "state": "stale", "onDemand": true, "objects": 2,
                    "objectBytes": 900, "eventLog": {"events": 0, "bytes": 0}, "watchers": 0,
                },
            ],
            "requests": [
                {"group": "", "resource": "pods", "cache": 970, "forwarded": 20, "rejected": 10},
            ],
        },
        "clients": {
            "total": 2,
            "watches": 8,
            "items": [
                {
                    "address": "10.0.0.1:5000", "protocol": "http2", "tls": true,
                    "ageSeconds": 3_660.0, "userNumber": 7, "userAgent": "agent/v1 \u{202e}x",
                    "requests": 3, "watches": 2, "heldBytes": 65_536, "unreadBytes": 1_024,
                    "slowestWatch": {
                        "group": "", "version": "v1", "resource": "pods", "behindEvents": 20_000,
                        "behindSeconds": 12.0,
                    },
                },
                {
                    "address": "10.0.0.2:5000", "protocol": "http1", "tls": false,
                    "ageSeconds": 5.0, "userNumber": 8, "requests": 0, "watches": 0,
                    "heldBytes": 4_096, "unreadBytes": 0,
                },
            ],
        },
        "freshness": {"total": 1, "items": [{
            "cache": pods, "policy": "strict", "unprovenTotal": 2, "isolatedSelections": 0,
            "doubted": false, "lastProof": {"method": "barrier", "ageSeconds": 3.0},
        }]},
        "memory": {"residentBytes": 300 << 20, "availableBytes": 2_u64 << 30},
    });
    let bill = json!({
        "seconds": 600.0,
        "clientsWithRows": 5,
        "total": {"requests": 1_000, "saved": {"requests": 970, "objects": 12_000,
            "estimatedCpuSeconds": 12.75}},
        "clients": [
            {
                "client": {"userNumber": 7, "userAgent": "agent/v1"},
                "seconds": 600.0, "openWatches": 2, "openedWatches": 1,
                "total": {"requests": 900, "hits": 870, "saved": {"requests": 870, "seats": 900,
                    "estimatedCpuSeconds": 12.25}},
                "minute": {"requests": 100, "hits": 29, "forwards": 71, "objects": 5_000,
                    "bytes": 4 << 20, "events": 30, "forbidden": 3, "cpuSeconds": 0.25},
                "forwarded": [{"reason": "secrets", "requests": 30}],
                "operations": [{"verb": "list", "group": "apps", "resource": "deployments",
                    "selector": "label", "open": 0, "minute": {"requests": 100, "hits": 29}}],
                "slow": {"answers": 1, "verb": "watch", "resource": "pods", "events": 9,
                    "waitedSeconds": 12.0},
                "advice": [{"kind": "listLoop", "evidence": "it lists", "fix": "use a watch"}],
            },
            {
                "client": {"address": "10.0.0.9", "userAgent": ""}, "minute": {"requests": 0},
            },
        ],
    });
    let advice = json!({
        "total": 1,
        "items": [{
            "client": {"userNumber": 8, "userAgent": "kubectl/v1"}, "kind": "listLoop",
            "evidence": "90 LISTs a minute of all pods", "fix": "use a watch",
        }],
    });
    let users = json!({"total": 1, "items": [{"number": 7, "name": "system:node:a\u{9b}"}]});
    Reading {
        snapshot,
        bill: Page::Shown(bill),
        advice: Page::Shown(advice),
        users: Page::Shown(users),
    }
}
