//! Safe owners over `sys`, for fp32 rows on the host backend, whose calls return when their work is done.
use crate::sys::{self, initialized};
use std::ffi::CStr;
use std::ops::{Deref, DerefMut};
use std::{fmt, ptr};

/// What a call returned, and the library's sentence about it.
#[derive(Debug)]
pub struct Error {
    pub result: sys::moeResult_t,
    pub sentence: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} (moeResult {})", self.sentence, self.result)
    }
}
impl std::error::Error for Error {}

fn check(result: sys::moeResult_t, comm: sys::moeComm_t) -> Result<(), Error> {
    if result == sys::moeSuccess {
        return Ok(());
    }
    // The sentence is text that ends with a zero. It is copied before this thread's next call changes it.
    let sentence = unsafe { CStr::from_ptr(sys::moeGetLastError(comm)) };
    Err(Error { result, sentence: sentence.to_string_lossy().into_owned() })
}

/// The library takes addresses that are multiples of 16. A `Vec<f32>` promises 4.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Block([f32; 4]);

/// [count][hidden] floats.
pub struct Rows {
    blocks: Vec<Block>,
    hidden: usize,
}

impl Rows {
    pub fn zeros(count: usize, hidden: usize) -> Self {
        assert_ne!(hidden, 0, "rows have columns");
        assert_eq!(hidden % 4, 0, "{hidden} columns: a row is a multiple of 16 bytes");
        Rows { blocks: vec![Block([0.0; 4]); count * hidden / 4], hidden }
    }

    pub fn count(&self) -> usize {
        self.blocks.len() * 4 / self.hidden
    }
}

impl Deref for Rows {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // Blocks are four floats each, without gaps.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.blocks.len() * 4) }
    }
}
impl DerefMut for Rows {
    fn deref_mut(&mut self) -> &mut [f32] {
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.blocks.len() * 4) }
    }
}

pub struct Communicator {
    raw: sys::moeComm_t,
    pub rank: i32,
    pub nranks: i32,
}

impl Communicator {
    /// Meets the ranks that the launcher started.
    pub fn from_env() -> Result<Self, Error> {
        let config = initialized!(moeConfig_t { backend: sys::moeBackendHost as i32, device: -1 });
        let mut comm = Communicator { raw: ptr::null_mut(), rank: 0, nranks: 0 };
        check(unsafe { sys::moeCommInitFromEnv(&mut comm.raw, &config) }, ptr::null_mut())?;
        let mut info = initialized!(moeCommInfo_t {});
        check(unsafe { sys::moeCommGetInfo(comm.raw, &mut info) }, comm.raw)?;
        (comm.rank, comm.nranks) = (info.rank, info.nranks);
        Ok(comm)
    }

    pub fn handle(&self, experts: i32, topk: i32) -> Result<Handle<'_>, Error> {
        let config = initialized!(moeHandleConfig_t { experts: experts, topk: topk });
        let mut handle = Handle { raw: ptr::null_mut(), comm: self, topk: topk as usize, tokens: 0 };
        check(unsafe { sys::moeHandleCreate(&mut handle.raw, self.raw, &config) }, self.raw)?;
        Ok(handle)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        unsafe { sys::moeCommDestroy(self.raw) }; // takes NULL too
    }
}

pub struct Handle<'a> {
    raw: sys::moeHandle_t,
    comm: &'a Communicator,
    topk: usize,
    tokens: usize,
}

impl Handle<'_> {
    /// `experts` is [tokens][topk]; -1 names no expert.
    pub fn route(&mut self, experts: &[i32]) -> Result<(), Error> {
        assert_eq!(experts.len() % self.topk, 0, "experts is no [tokens][{}]", self.topk);
        let tokens = experts.len() / self.topk;
        check(
            unsafe { sys::moeRoute(self.raw, experts.as_ptr().cast(), ptr::null(), tokens as i32, ptr::null_mut()) },
            self.comm.raw,
        )?;
        self.tokens = tokens;
        Ok(())
    }

    /// How many rows arrive here, by the last route.
    pub fn rows(&self) -> Result<usize, Error> {
        let mut counts = initialized!(moeCounts_t {});
        check(unsafe { sys::moeHandleGetCounts(self.raw, &mut counts) }, self.comm.raw)?;
        Ok(counts.rows as usize)
    }

    /// `rows` has the tokens of the route, `arrived` room for rows() rows.
    pub fn dispatch(&mut self, rows: &Rows, arrived: &mut Rows) -> Result<(), Error> {
        assert_eq!(rows.count(), self.tokens, "rows has another number of tokens than the route");
        assert_eq!(rows.hidden, arrived.hidden, "rows and arrived have different columns");
        let arguments = initialized!(moeDispatchArgs_t {
            rows: rows.as_ptr().cast(),
            rowType: sys::moeRowFp32 as i32,
            hidden: rows.hidden as i32,
            outRowsMax: arrived.count() as _,
            outRows: arrived.as_mut_ptr().cast(),
        });
        check(unsafe { sys::moeDispatch(self.raw, &arguments, ptr::null_mut()) }, self.comm.raw)?;
        self.require_no_fault()
    }

    /// `rows` is what the experts made of those that arrived; `sums` has a row for each token.
    pub fn combine(&mut self, rows: &Rows, sums: &mut Rows) -> Result<(), Error> {
        assert!(rows.count() >= self.rows()?, "rows has fewer rows than have arrived");
        assert_eq!(sums.count(), self.tokens, "sums has another number of tokens than the route");
        assert_eq!(rows.hidden, sums.hidden, "rows and sums have different columns");
        let arguments = initialized!(moeCombineArgs_t {
            rows: rows.as_ptr().cast(),
            rowType: sys::moeRowFp32 as i32,
            hidden: rows.hidden as i32,
            out: sums.as_mut_ptr().cast(),
        });
        check(unsafe { sys::moeCombine(self.raw, &arguments, ptr::null_mut()) }, self.comm.raw)?;
        self.require_no_fault()
    }

    /// A call succeeds although an expert id was bad or an output too small. The handle knows about it.
    fn require_no_fault(&self) -> Result<(), Error> {
        let mut status = initialized!(moeHandleStatus_t {});
        check(unsafe { sys::moeHandleGetStatus(self.raw, &mut status) }, self.comm.raw)?;
        if status.result == sys::moeSuccess as i32 {
            return Ok(());
        }
        let sentence = unsafe { CStr::from_ptr(status.sentence) };
        Err(Error { result: status.result as _, sentence: sentence.to_string_lossy().into_owned() })
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        unsafe { sys::moeHandleDestroy(self.raw) };
    }
}
