//! A change as the log keeps it, shared by all streams, with the frames it was encoded into.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::WireFormat;
use crate::cache::log::charge::Charge;
use crate::mutation;
use crate::mutation::Mutation;

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// What happened to the object.
    pub event_type: EventType,
    /// The object after the change; of a deletion what the upstream sent with it.
    pub object: Arc<Object>,
    /// The object as stored before the change.
    pub previous: Option<Arc<Object>>,
    /// The change's place in history. The objects' own may be lower where the change is a deletion
    /// that a relist implied.
    pub resource_version: ResourceVersion,
    /// True for what a relist tells at the version before it.
    in_block: bool,
    part: ChangePart,
    frames: Frames,
    /// Frames of the objects' metadata alone, by format; made when first asked for.
    metadata_frames: OnceLock<Box<[Frames; 2]>>,
    charge: Charge,
}

/// Frames by verdict.
type Frames = [OnceLock<Bytes>; 3];

/// Which part of a change an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangePart {
    Whole,
    /// Only that an object leaves a selection.
    Departure,
    /// All but that: it was told in the block.
    ExceptDeparture,
}

/// What an event and its place in the log take beside its objects, about.
const OVERHEAD: usize = 240;

// === impl Event ===

impl Event {
    /// A change that the upstream told in `frame` as an event of type `frame_type`.
    pub(in crate::cache) fn new(
        event_type: EventType,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        upstream_frame: Option<(EventType, Bytes)>,
    ) -> Self {
        let frames = Frames::default();
        let upstream_frame =
            upstream_frame.map(|(frame_type, frame)| (frame_index(frame_type), frame));
        // The body is a slice of the frame, of which only the rest counts therefore.
        let frame_bytes = upstream_frame.as_ref().map_or(0, |(_, frame)| frame.len());
        let bytes = OVERHEAD
            + object.size()
            + frame_bytes.saturating_sub(object.body.len())
            + previous.as_deref().map_or(0, Object::size);
        if let Some((frame_index, frame)) = upstream_frame {
            frames[frame_index].get_or_init(|| frame);
        }
        Self {
            event_type,
            resource_version: object.resource_version,
            object,
            previous,
            in_block: false,
            part: ChangePart::Whole,
            frames,
            metadata_frames: OnceLock::new(),
            charge: Charge::new(bytes),
        }
    }

    /// A deletion of `object` that a relist implied, told at resource version `at`.
    pub(in crate::cache) fn implied_deletion(object: Arc<Object>, at: ResourceVersion) -> Self {
        let charge = Charge::new(OVERHEAD + object.size());
        Self {
            event_type: EventType::Deleted,
            previous: Some(object.clone()),
            object,
            resource_version: at,
            in_block: true,
            part: ChangePart::Whole,
            frames: Default::default(),
            metadata_frames: OnceLock::new(),
            charge,
        }
    }

    /// That `previous`, which a relist found changed to `object`, left the selections that it no
    /// longer matches, told at resource version `at`; `None` where it matches what it matched.
    pub(in crate::cache) fn implied_departure(
        object: &Arc<Object>,
        previous: &Arc<Object>,
        at: ResourceVersion,
    ) -> Option<Self> {
        if object.has_same_selectable_values(previous) {
            return None;
        }
        Some(Self {
            event_type: EventType::Modified,
            object: object.clone(),
            part: ChangePart::Departure,
            ..Self::implied_deletion(previous.clone(), at)
        })
    }

    /// The change without what [`Event::implied_departure`] tells of it.
    pub(in crate::cache) fn without_departure(mut self) -> Self {
        self.part = ChangePart::ExceptDeparture;
        self
    }

    /// True when this is not the event that counts for its change.
    pub(in crate::cache) fn is_departure(&self) -> bool {
        self.part == ChangePart::Departure
    }

    /// What this change is to someone who sees only what `selection` selects; `None`: nothing.
    pub fn verdict(&self, selection: &Selection) -> Option<EventType> {
        let is_selected = |object: &Arc<Object>| selection.matches(object);
        let before = match &self.previous {
            Some(_) if mutation::is_active(Mutation::NewObjectOnly) => is_selected(&self.object),
            previous => previous.as_ref().is_some_and(is_selected),
        };
        let after = self.event_type != EventType::Deleted && is_selected(&self.object);
        match (before, after, self.part) {
            (true, false, ChangePart::ExceptDeparture) => None,
            (true, false, _) => Some(EventType::Deleted),
            (_, _, ChangePart::Departure) | (false, false, _) => None,
            (false, true, _) => Some(EventType::Added),
            (true, true, _) => Some(EventType::Modified),
        }
    }

    /// The object that tells this event as `verdict`: an object that leaves a selection is told as
    /// it was before. It is told at [`Event::resource_version`], whatever its own is.
    pub fn object_for(&self, verdict: EventType) -> &Arc<Object> {
        let leaves = verdict == EventType::Deleted && self.event_type != EventType::Deleted;
        match &self.previous {
            Some(previous) if leaves => previous,
            _ => &self.object,
        }
    }

    /// The frame that tells this event as `verdict`, encoded at most once.
    ///
    /// The upstream's own frame is returned where it told the same; else the first caller's
    /// `encode` makes it, of [`Event::object_for`] at [`Event::resource_version`]. Callers that
    /// want the same frame meanwhile wait for it.
    pub fn frame(&self, verdict: EventType, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.encoded_once(&self.frames[frame_index(verdict)], encode)
    }

    /// As [`Event::frame`], the frame in `format` that tells the object's metadata alone.
    pub fn metadata_frame(
        &self,
        format: WireFormat,
        verdict: EventType,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let frames = self.metadata_frames.get_or_init(|| {
            self.charge.add(size_of::<[Frames; 2]>());
            Box::default()
        });
        let frames = match format {
            WireFormat::Json => &frames[0],
            WireFormat::Protobuf => &frames[1],
        };
        self.encoded_once(&frames[frame_index(verdict)], encode)
    }

    fn encoded_once(&self, frame: &OnceLock<Bytes>, encode: impl FnOnce() -> Bytes) -> Bytes {
        let encode_and_charge = || {
            let frame = encode();
            self.charge.add(frame.len());
            frame
        };
        frame.get_or_init(encode_and_charge).clone()
    }

    /// The frame that the object's body is a slice of.
    pub(in crate::cache) fn backing_frame(&self) -> Option<&Bytes> {
        let body = self.object.body.as_ptr();
        let frames = self.frames.iter().filter_map(OnceLock::get);
        frames
            .into_iter()
            .find(|frame| frame.as_ptr_range().contains(&body))
    }

    /// True when a client that has seen all up to `start` needs not see this event.
    ///
    /// Whoever holds the version of a block may have been cut in the middle of it.
    pub(in crate::cache) fn is_known_at(&self, start: ResourceVersion) -> bool {
        self.resource_version < start
            || (self.resource_version == start
                && (!self.in_block || mutation::is_active(Mutation::BlockNotRepeated)))
    }

    /// Lets `ledger` count this event's bytes, now and when more frames are encoded.
    pub(super) fn charge_to(&self, ledger: &Arc<AtomicUsize>) {
        self.charge.begin(ledger);
    }

    /// Counts `bytes` that were spent to keep this event at hand.
    pub(in crate::cache) fn charge(&self, bytes: usize) {
        if bytes > 0 {
            self.charge.add(bytes);
        }
    }

    /// Takes this event's bytes off its ledger for good.
    pub(super) fn discharge(&self) {
        self.charge.end();
    }
}

fn frame_index(event_type: EventType) -> usize {
    match event_type {
        EventType::Added => 0,
        EventType::Modified => 1,
        EventType::Deleted => 2,
    }
}
