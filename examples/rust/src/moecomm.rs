//! Safe owners over `sys`, for fp32 rows on the host backend, whose calls return when their work is done.
use crate::sys::{self, initialized};
use std::ffi::CStr;
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

    /// `rows` is [tokens][hidden], `arrived` [at least rows()][hidden].
    pub fn dispatch(&mut self, rows: &[f32], arrived: &mut [f32], hidden: usize) -> Result<(), Error> {
        assert_eq!(rows.len(), self.tokens * hidden, "rows is no [tokens][{hidden}]");
        let arguments = initialized!(moeDispatchArgs_t {
            rows: rows.as_ptr().cast(),
            rowType: sys::moeRowFp32 as i32,
            hidden: hidden as i32,
            outRows: arrived.as_mut_ptr().cast(),
            outRowsMax: (arrived.len() / hidden) as _,
        });
        check(unsafe { sys::moeDispatch(self.raw, &arguments, ptr::null_mut()) }, self.comm.raw)?;
        self.require_no_fault()
    }

    /// `rows` is [at least rows()][hidden], what the experts made of them; `sums` is [tokens][hidden].
    pub fn combine(&mut self, rows: &[f32], sums: &mut [f32], hidden: usize) -> Result<(), Error> {
        assert!(rows.len() >= self.rows()? * hidden, "rows has less than [rows()][{hidden}]");
        assert_eq!(sums.len(), self.tokens * hidden, "sums is no [tokens][{hidden}]");
        let arguments = initialized!(moeCombineArgs_t {
            rows: rows.as_ptr().cast(),
            rowType: sys::moeRowFp32 as i32,
            hidden: hidden as i32,
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
