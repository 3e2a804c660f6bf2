//! Computes the cells of a Table's row from an object's JSON.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::column::ColumnDefinition;
use super::custom::CustomColumn;
use super::kinds;
use super::kinds::Cells;

/// Computes the rows of a Table for the objects of one kind.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Arc<[ColumnDefinition]>,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    BuiltIn(Cells),
    /// The columns of a custom resource after the name column.
    Custom(Arc<[CustomColumn]>),
}

impl Printer {
    /// The printer of a built-in kind; `None` if this module does not support the kind.
    pub fn built_in(api_version: &str, kind: &str) -> Option<Self> {
        let (columns, cells) = kinds::built_in(api_version, kind)?;
        let shape = Shape::BuiltIn(cells);
        Some(Self { columns, shape })
    }

    /// The API server's printer for all other kinds; its columns are Name and Created At.
    pub fn fallback() -> Self {
        Self {
            columns: kinds::default_columns(),
            shape: Shape::BuiltIn(kinds::created_at),
        }
    }

    /// The printer of a custom resource, from its CustomResourceDefinition; `None` if the
    /// definition does not have this version.
    ///
    /// A column whose path cannot be parsed has null cells.
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

    /// The definitions of all columns, in order.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Computes the cells of an object, one for each column, with ages at `now`.
    ///
    /// A missing value and a value of the wrong type are treated as unset. The cells of a bookmark
    /// are the cells of the empty object `{}`.
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
