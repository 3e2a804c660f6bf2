//! ColumnDefinition: the head of a table's column.

use serde::Deserialize;
use serde::Serialize;

/// What a table says of one of its columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// What stands above the column.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub column_type: String,
    /// `name` for the column that names the object; else empty, or an OpenAPI format.
    pub format: String,
    /// What the cells mean.
    pub description: String,
    /// 0 is always shown, more than that only when there is room for it.
    pub priority: i32,
}
