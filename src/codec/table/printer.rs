//! Printer: an object's JSON to its cells.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::column::ColumnDefinition;
use super::custom::CustomColumn;
use super::kinds;
use super::kinds::Cells;

/// Prints the objects of one kind as rows of a table.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Arc<[ColumnDefinition]>,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    BuiltIn(Cells),
    /// The columns behind the name.
    Custom(Arc<[CustomColumn]>),
}

impl Printer {
    /// The printer of a built-in kind; `None` when its columns are not known here.
    pub fn built_in(api_version: &str, kind: &str) -> Option<Self> {
        let (columns, cells) = kinds::built_in(api_version, kind)?;
        let shape = Shape::BuiltIn(cells);
        Some(Self { columns, shape })
    }

    /// The printer that the server falls back to: Name and Created At.
    pub fn fallback() -> Self {
        Self {
            columns: kinds::default_columns(),
            shape: Shape::BuiltIn(kinds::created_at),
        }
    }

    /// The printer of a custom resource, from its CustomResourceDefinition; `None` when the
    /// definition has no such version.
    ///
    /// A column whose path can't be read has empty cells.
    pub fn custom(definition: &Value, version: &str) -> Option<Self> {
        let versions = definition["spec"]["versions"].as_array()?;
        let version = versions.iter().find(|found| found["name"] == version)?;
        let name = kinds::default_columns()[0].clone();
        let custom = CustomColumn::of_version(version);
        let heads = custom.iter().map(CustomColumn::definition);
        let columns = std::iter::once(name).chain(heads).collect();
        let shape = Shape::Custom(custom.into());
        Some(Self { columns, shape })
    }

    /// The heads of the columns.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// The cells of an object, one a column, with ages as of `now`.
    ///
    /// Anything missing or of another type than it should be counts as unset, so a bookmark's
    /// cells are those of `{}`.
    pub fn cells(&self, object: &Value, now: SystemTime) -> Vec<Value> {
        let now = now.into();
        match &self.shape {
            Shape::BuiltIn(cells) => cells(object, now),
            Shape::Custom(columns) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let cells = columns.iter().map(|column| column.cell(object, now));
                std::iter::once(name.into()).chain(cells).collect()
            }
        }
    }
}
