//! Compares kubefan's rows with the API server's own Tables.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Request, header};
use kubefan_core::api::{GroupVersionResource, ObjectKey, Selection, escape_field_value};
use kubefan_core::cache::Snapshot;
use kubefan_core::codec::{Printer, Work};
use kubefan_core::concurrency::CoopBudget;
use kubefan_core::upstream::{Client, Identity, Scope};
use kubefan_core::{body, upstream};
use rand::Rng;
use serde_json::Value;

use super::sample::varied;
use super::state::{CheckResult, SAMPLE};

/// The largest number of objects from which the compared objects are chosen.
const MAX_EXAMINED: usize = 5_000;
/// The longest Table, in bytes, that is read: enough for a Table of one object.
const TABLE_LIMIT: usize = 16 << 20;
/// The longest time that an answer may take. The ages of a slower answer can't be compared.
const MAX_DURATION: Duration = Duration::from_secs(10);
/// The `Date` header has whole seconds, and is written shortly after the ages.
const CLOCK_STEP: Duration = Duration::from_secs(1);
/// The query of the list whose order is examined.
const PAGE: (&str, &str) = ("limit", "20");
const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");

/// What is compared: a kind's printer, for the objects of a cache.
pub(super) struct Comparison<'a> {
    pub(super) client: &'a Client,
    pub(super) gvr: &'a GroupVersionResource,
    pub(super) printer: &'a Printer,
    /// The objects of the cache; kubefan may have no right to read other objects.
    pub(super) scope: &'a Scope,
    pub(super) snapshot: Snapshot,
}

/// A Table of the API server, and the times between which its ages were printed.
struct ApiServerTable {
    table: Value,
    earliest: SystemTime,
    latest: SystemTime,
}

impl Comparison<'_> {
    /// Compares the columns, the order of the first rows, and the rows of some objects with
    /// different cells. Each row is compared with the row that kubefan prints for the object in the
    /// API server's answer.
    pub(super) async fn run(&self) -> CheckResult {
        let objects = self.snapshot.len();
        let Some(keys) = self.keys().await else {
            return CheckResult::OtherCells;
        };
        let mut compared = 0;
        let namespace = self.scope.namespace.as_deref();
        let page = self.query(&[PAGE], None);
        let Some(page) = self.table(namespace, &page).await else {
            return CheckResult::Failed;
        };
        if !self.printer.has_columns_of(&page.table) {
            return CheckResult::OtherColumns;
        }
        if !is_in_order(&page.table) {
            tracing::warn!(resource = %self.gvr, "the API server sorts the rows of its Tables");
            return CheckResult::OtherOrder;
        }
        for key in keys {
            let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
            let query = self.query(
                &[("includeObject", "Object"), ("resourceVersion", "0")],
                Some(key.name()),
            );
            let Some(answer) = self.table(namespace, &query).await else {
                return CheckResult::Failed;
            };
            if !self.printer.has_columns_of(&answer.table) {
                return CheckResult::OtherColumns;
            }
            // The object may have been deleted after it was chosen.
            for row in answer.table["rows"].as_array().into_iter().flatten() {
                if let Some(column) =
                    self.printer
                        .differing_column(row, answer.earliest, answer.latest)
                {
                    tracing::warn!(
                        resource = %self.gvr, object = %key, column,
                        "a cell of kubefan's differs from the API server's"
                    );
                    return CheckResult::OtherCells;
                }
                compared += 1;
            }
        }
        CheckResult::Equal { compared, objects }
    }

    /// Returns the keys of the objects to compare, or `None` if kubefan can't print one of the
    /// examined objects.
    async fn keys(&self) -> Option<Vec<ObjectKey>> {
        let mut budget = CoopBudget::new();
        let mut keys = Vec::new();
        let mut rows = Vec::new();
        let everything = Selection::default();
        let unexamined = self.snapshot.len().saturating_sub(MAX_EXAMINED);
        let begin = rand::rng().random_range(0..=unexamined);
        let objects = self.snapshot.candidates(&everything, None).enumerate();
        for (place, object) in objects.take(begin + MAX_EXAMINED) {
            if place < begin {
                budget.charge(1);
                budget.proceed().await;
                continue;
            }
            keys.push(object.key.clone());
            rows.push(self.printer.constant_cells(object)?);
            budget.charge(Work::Printed.units(object));
            budget.proceed().await;
        }
        let chosen = varied(&rows, SAMPLE, &mut rand::rng());
        Some(chosen.into_iter().map(|row| keys[row].clone()).collect())
    }

    /// Returns a query with `parameters` for the objects of the scope, or only for the object
    /// `name`.
    fn query(&self, parameters: &[(&str, &str)], name: Option<&str>) -> String {
        let by_name = name.map(|name| format!("metadata.name={}", escape_field_value(name)));
        let of_scope = Some(self.scope.field_selector.clone());
        let fields: Vec<_> = [by_name, of_scope].into_iter().flatten().collect();
        let fields = fields.join(",");
        let selectors = [
            ("fieldSelector", fields.trim_end_matches(',')),
            ("labelSelector", &self.scope.label_selector),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        query.extend_pairs(selectors.iter().filter(|(_, text)| !text.is_empty()));
        query.finish()
    }

    /// Returns the API server's Table of the collection in `namespace` with `query`, or `None` if
    /// it gave none that can be compared.
    async fn table(&self, namespace: Option<&str>, query: &str) -> Option<ApiServerTable> {
        let path = self.gvr.path(namespace);
        let mut request = Request::new(body::empty());
        *request.uri_mut() = format!("{path}?{query}").parse().ok()?;
        request.headers_mut().insert(header::ACCEPT, TABLE);
        let before = SystemTime::now();
        let received = async {
            let response = self
                .client
                .request_success(Identity::Kubefan, request)
                .await?;
            let (parts, body) = response.into_parts();
            let body = upstream::collect(body, TABLE_LIMIT).await?;
            Ok::<_, upstream::Error>((parts.headers, body))
        };
        let (headers, body) = match received.await {
            Ok(received) => received,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, resource = %self.gvr, "a Table to compare was not received");
                return None;
            }
        };
        let took = before.elapsed().unwrap_or_default();
        let table: Value = serde_json::from_slice(&body).ok()?;
        let sent = upstream::date(&headers)?;
        (took <= MAX_DURATION && table["kind"] == "Table").then(|| ApiServerTable {
            table,
            earliest: sent - took - CLOCK_STEP,
            latest: sent + CLOCK_STEP,
        })
    }
}

/// Returns true if the rows of a Table are in the order of the objects' keys, like the rows of
/// kubefan.
fn is_in_order(table: &Value) -> bool {
    let rows = table["rows"].as_array().into_iter().flatten();
    let keys = rows.map(|row| {
        let metadata = &row["object"]["metadata"];
        ObjectKey::new(
            metadata["namespace"].as_str(),
            metadata["name"].as_str().unwrap_or_default(),
        )
    });
    keys.is_sorted()
}

#[cfg(test)]
mod tests;
