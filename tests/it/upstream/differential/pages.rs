//! Walks of whole lists, page by page, here and there.
