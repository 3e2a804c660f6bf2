//! Renders cron jobs and jobs.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::{Cluster, CronJob, Job, JobStatus};
use crate::workload::render::controllers::{app_labels, job_labels};
use crate::workload::render::metadata::Draft;
use crate::workload::render::pod_template::pod_template;

const MANAGER: &str = "kube-controller-manager";

pub(super) fn cron_job(cron_job: &CronJob) -> Value {
    let mut draft = Draft::new("batch/v1", "CronJob", &cron_job.identity);
    let labels = app_labels(&cron_job.template);
    draft.metadata["labels"] = labels.clone();
    draft.metadata["generation"] = json!(1);
    let template = pod_template(&cron_job.template, &cron_job.tag, labels);
    draft.object["spec"] = json!({
        "concurrencyPolicy": "Forbid",
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {}, "spec": {"backoffLimit": 6, "template": template}},
        "schedule": "*/10 * * * *",
        "successfulJobsHistoryLimit": 3,
        "suspend": false,
    });
    draft.managed_by("helm", cron_job.identity.created);
    let status = json!({"lastScheduleTime": time(cron_job.scheduled)});
    draft.status(status, MANAGER, cron_job.identity.written);
    draft.finish()
}

/// Renders a job; `None` if the job's cron job does not exist.
pub(super) fn job(job: &Job, cluster: &Cluster) -> Option<Value> {
    let owner = cluster.cron_jobs.get(job.cron_job)?;
    let mut draft = Draft::new("batch/v1", "Job", &job.identity);
    let labels = job_labels(job);
    draft.metadata["labels"] = labels.clone();
    draft.metadata["generation"] = json!(1);
    let due = time(job.identity.created - job.identity.created % 60);
    let annotations = json!({"batch.kubernetes.io/cronjob-scheduled-timestamp": due});
    draft.metadata["annotations"] = annotations;
    draft.owner("batch/v1", "CronJob", &owner.identity);
    let uid = &job.identity.uid;
    draft.object["spec"] = json!({
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": false,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        "suspend": false,
        "template": pod_template(&owner.template, &owner.tag, labels),
    });
    draft.managed_by(MANAGER, job.identity.created);
    draft.status(status(job), MANAGER, job.identity.written);
    Some(draft.finish())
}

fn status(job: &Job) -> Value {
    let started = time(job.identity.created);
    match job.status {
        JobStatus::New => json!({}),
        JobStatus::Active => json!({
            "active": 1,
            "ready": 0,
            "startTime": started,
            "terminating": 0,
            "uncountedTerminatedPods": {},
        }),
        JobStatus::Complete => json!({
            "completionTime": time(job.completed),
            "conditions": [condition("SuccessCriteriaMet", job), condition("Complete", job)],
            "ready": 0,
            "startTime": started,
            "succeeded": 1,
            "terminating": 0,
            "uncountedTerminatedPods": {},
        }),
    }
}

fn condition(kind: &str, job: &Job) -> Value {
    let at = time(job.completed);
    json!({
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "message": "Reached expected number of succeeded pods",
        "reason": "CompletionsReached",
        "status": "True",
        "type": kind,
    })
}
