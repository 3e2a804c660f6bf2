//! The definition of a table's column.

use serde::{Deserialize, Serialize};

/// The definition of one column of a Table, as in the API's `TableColumnDefinition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// The heading of the column.
    pub name: String,
    /// The type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub column_type: String,
    /// The text `name` for the column of object names; otherwise an OpenAPI format or empty.
    pub format: String,
    /// A description of the cells for people.
    pub description: String,
    /// Columns with priority 0 are always shown; clients show higher ones only in wide output.
    pub priority: i32,
}
