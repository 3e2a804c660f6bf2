//! Renders the pod templates of workload controllers.

use serde_json::{Value, json};

use crate::workload::cluster::{Container, Template};

/// Returns the spec of a pod before scheduling, with defaults.
pub(super) fn pod_spec(template: &Template, tag: &str) -> Value {
    let containers = template.containers.iter();
    let containers: Vec<_> = containers
        .map(|one| container(one, template, tag))
        .collect();
    let mut spec = json!({
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": if template.once { "OnFailure" } else { "Always" },
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": template.account,
        "serviceAccountName": template.account,
        "terminationGracePeriodSeconds": 30,
    });
    spec["containers"] = Value::Array(containers);
    let volumes = volumes(template);
    if !volumes.is_empty() {
        spec["volumes"] = Value::Array(volumes);
    }
    if template.privileged {
        spec["hostNetwork"] = json!(true);
        spec["priorityClassName"] = json!("system-node-critical");
        spec["tolerations"] = json!([{"operator": "Exists"}]);
    } else {
        spec["securityContext"] =
            json!({"fsGroup": 65532, "runAsNonRoot": true, "runAsUser": 65532});
    }
    spec
}

/// Returns the pod template of a deployment, replica set, daemon set or job.
pub(super) fn pod_template(template: &Template, tag: &str, labels: Value) -> Value {
    let mut rendered = json!({"metadata": {}});
    rendered["metadata"]["labels"] = labels;
    rendered["metadata"]["annotations"] = annotations(template);
    rendered["spec"] = pod_spec(template, tag);
    rendered
}

pub(super) fn annotations(template: &Template) -> Value {
    let first = template.containers.first();
    json!({
        "kubectl.kubernetes.io/default-container": template.app,
        "prometheus.io/port": first.map_or(8080, |first| first.port).to_string(),
        "prometheus.io/scrape": "true",
    })
}

fn container(container: &Container, template: &Template, tag: &str) -> Value {
    let mut rendered = json!({
        "name": container.name,
        "image": format!("{}:{tag}", container.repository),
        "imagePullPolicy": "IfNotPresent",
        "resources": {
            "limits": {"memory": format!("{}Mi", container.mebibytes)},
            "requests": {
                "cpu": format!("{}m", container.millicores),
                "memory": format!("{}Mi", container.mebibytes),
            },
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    });
    rendered["env"] = Value::Array(environment(container, template));
    rendered["securityContext"] = security_context(template);
    let mounts = mounts(template);
    if !mounts.is_empty() {
        rendered["volumeMounts"] = Value::Array(mounts);
    }
    if !template.once {
        rendered["ports"] = json!([{
            "containerPort": container.port,
            "name": if container.name == "proxy" { "mesh" } else { "http" },
            "protocol": "TCP",
        }]);
        if template.privileged {
            rendered["ports"][0]["hostPort"] = json!(container.port);
        }
        rendered["livenessProbe"] = probe("/healthz", container.port, 10);
        rendered["readinessProbe"] = probe("/readyz", container.port, 5);
    }
    rendered
}

fn environment(container: &Container, template: &Template) -> Vec<Value> {
    let field = |name: &str, path: &str| {
        json!({
            "name": name,
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
        })
    };
    let mut variables = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
    ];
    if let Some(secret) = &template.secret {
        variables.push(json!({
            "name": "DATABASE_PASSWORD",
            "valueFrom": {"secretKeyRef": {"key": "password", "name": secret}},
        }));
    }
    let plain = container.environment.iter();
    variables.extend(plain.map(|(name, value)| json!({"name": name, "value": value})));
    variables
}

fn security_context(template: &Template) -> Value {
    if template.privileged {
        return json!({"privileged": true});
    }
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
    })
}

fn probe(path: &str, port: u16, period: u32) -> Value {
    json!({
        "failureThreshold": 3,
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "initialDelaySeconds": 5,
        "periodSeconds": period,
        "successThreshold": 1,
        "timeoutSeconds": 2,
    })
}

fn volumes(template: &Template) -> Vec<Value> {
    let mut volumes = Vec::new();
    if let Some(name) = &template.config_map {
        volumes.push(json!({"name": "settings", "configMap": {"defaultMode": 420, "name": name}}));
        volumes.push(json!({"name": "tmp", "emptyDir": {}}));
    }
    volumes
}

fn mounts(template: &Template) -> Vec<Value> {
    if template.config_map.is_none() {
        return Vec::new();
    }
    vec![
        json!({"name": "settings", "mountPath": format!("/etc/{}", template.app), "readOnly": true}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
    ]
}
