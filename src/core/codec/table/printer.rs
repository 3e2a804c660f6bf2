//! Computes the cells of a Table's row from an object's JSON.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::cells::cell::Cell;
use super::cells::value::name;
use super::column::ColumnDefinition;
use super::custom::CustomColumn;
use super::kinds;
use super::kinds::Cells;
use super::part::{Document, Part};
use crate::api::Bookmark;
use crate::codec::json::raw_event;

/// The kind of CustomResourceDefinitions.
const DEFINITION: &str = "CustomResourceDefinition";
/// The kind of the aggregator's objects.
const API_SERVICE: &str = "APIService";

/// Up to this number of custom columns, the text of an object is searched for each column. For more
/// columns, the text is parsed into a tree once.
const MAX_PASSES: usize = 16;

/// Computes the rows of a Table for the objects of one kind.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Arc<[ColumnDefinition]>,
    shape: Shape,
    /// True if the API server encodes the rows of an empty list as `null`. It does so
    /// for kinds without a printer and for definitions, because it allocates their slice
    /// only with the first row.
    pub(super) has_null_rows: bool,
    /// True if each event of a watch has the columns. The API server leaves them out after the
    /// first one, but its aggregator does not.
    pub(super) repeats_columns: bool,
}

#[derive(Clone, Debug)]
enum Shape {
    BuiltIn(&'static Cells),
    /// The columns of a custom resource after the name column.
    Custom(Arc<[CustomColumn]>),
}

impl Printer {
    /// Returns the printer of a built-in kind for the newest supported API server, or `None` if
    /// this module does not support the kind.
    pub fn built_in(api_version: &str, kind: &str) -> Option<Self> {
        Self::built_in_at(api_version, kind, u32::MAX)
    }

    /// Returns the printer of a built-in kind for API servers of version 1.`minor`, such as 37, or
    /// `None` if this module does not support the kind.
    ///
    /// API servers from 1.34 on are supported. For other versions, the printer of the closest
    /// supported version is returned.
    pub fn built_in_at(api_version: &str, kind: &str, minor: u32) -> Option<Self> {
        let (columns, cells) = kinds::built_in(api_version, kind, minor)?;
        let shape = Shape::BuiltIn(cells);
        Some(Self {
            has_null_rows: kind == DEFINITION || columns == kinds::default_columns(),
            repeats_columns: kind == API_SERVICE,
            columns,
            shape,
        })
    }

    /// Returns the API server's printer for all other kinds; its columns are Name and Created At.
    pub fn fallback() -> Self {
        Self {
            columns: kinds::default_columns(),
            shape: Shape::BuiltIn(kinds::default_cells()),
            has_null_rows: true,
            repeats_columns: false,
        }
    }

    /// Returns the printer of a custom resource, from its CustomResourceDefinition, or `None` if
    /// the definition does not have this version.
    ///
    /// If the path of a column cannot be parsed, the column has null cells.
    pub fn custom(definition: &Value, version: &str) -> Option<Self> {
        let versions = definition["spec"]["versions"].as_array()?;
        let version = versions.iter().find(|found| found["name"] == version)?;
        let name = kinds::default_columns()[0].clone();
        let custom = CustomColumn::of_version(version);
        let heads = custom.iter().map(|column| column.definition.clone());
        let columns = std::iter::once(name).chain(heads).collect();
        Some(Self {
            columns,
            shape: Shape::Custom(custom.into()),
            has_null_rows: false,
            repeats_columns: false,
        })
    }

    /// Returns true if the cells of all columns can be computed. Some paths of custom columns can't
    /// be parsed; the API server does not accept some of them either.
    pub fn is_complete(&self) -> bool {
        match &self.shape {
            Shape::BuiltIn(_) => true,
            Shape::Custom(columns) => columns.iter().all(CustomColumn::is_supported),
        }
    }

    /// Returns true if both are printers of custom resources that print equal cells.
    pub fn is_same_custom(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (Shape::Custom(own), Shape::Custom(others)) => own == others,
            _ => false,
        }
    }

    /// Returns the definitions of all columns, in order.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Computes the cells of an object, one for each column, with ages at `now`.
    ///
    /// A missing value and a value of the wrong type are treated as unset. The cells of a bookmark
    /// are the cells of the empty object `{}`.
    pub fn cells(&self, object: &Value, now: SystemTime) -> Vec<Value> {
        let now = now.into();
        let text = object.to_string();
        let cells = self.unprinted(Document::new(text.as_bytes()).root());
        cells.into_iter().map(|cell| cell.at(now)).collect()
    }

    /// Returns the cells of a bookmark, with ages at `now`.
    ///
    /// The bookmark of a custom resource has a kind and a version, which columns may show. That of
    /// a built-in kind has nothing that its cells depend on.
    pub(super) fn bookmark_cells(&self, bookmark: &Bookmark, now: SystemTime) -> Vec<Value> {
        let object = match self.shape {
            Shape::BuiltIn(_) => None,
            Shape::Custom(_) => raw_event(&bookmark.frame).ok(),
        };
        let document = Document::new(object.map_or(b"{}", |event| event.object));
        let cells = self.unprinted(document.root()).into_iter();
        cells.map(|cell| cell.at(now.into())).collect()
    }

    /// Returns the cells of an object, one for each column.
    pub(super) fn unprinted(&self, object: Part<'_>) -> Vec<Cell> {
        match &self.shape {
            Shape::BuiltIn(cells) => cells.of(object),
            Shape::Custom(columns) => {
                let name = std::iter::once(name(object));
                if columns.len() > MAX_PASSES
                    && let Some(tree) = object.tree()
                {
                    let cells = columns.iter().map(|column| column.cell_in_tree(&tree));
                    return name.chain(cells).collect();
                }
                let cells = columns.iter().map(|column| column.cell(object));
                name.chain(cells).collect()
            }
        }
    }
}
