//! One MoE step in host memory. Token t of each rank goes to experts t and t + 1, with one expert per rank. Each expert
//! doubles its rows, and combine adds the results. Run: moerun -n 4 target/release/moecomm-example
#![deny(unsafe_op_in_unsafe_fn)]
mod moecomm;
mod sys;

use moecomm::{Communicator, Rows};
use std::process::ExitCode;

const TOKENS: usize = 4;
const TOPK: usize = 2;
const HIDDEN: usize = 8;

/// How many tokens got wrong sums.
fn run() -> Result<usize, moecomm::Error> {
    let comm = Communicator::from_env()?;
    let uses = TOPK.min(comm.nranks as usize); // experts of a token
    let expert = |token: usize, k: usize| if k < uses { ((token + k) % comm.nranks as usize) as i32 } else { -1 };
    let experts: Vec<i32> = (0..TOKENS * TOPK).map(|i| expert(i / TOPK, i % TOPK)).collect();
    let mut rows = Rows::zeros(TOKENS, HIDDEN);
    rows.iter_mut().enumerate().for_each(|(i, value)| *value = (comm.rank * 1000) as f32 + i as f32);

    let mut handle = comm.handle(comm.nranks, TOPK as i32)?;
    handle.route(&experts)?;
    let mut arrived = Rows::zeros(handle.rows()?, HIDDEN);
    handle.dispatch(&rows, &mut arrived)?;
    arrived.iter_mut().for_each(|value| *value *= 2.0); // what the expert does
    let mut sums = Rows::zeros(TOKENS, HIDDEN);
    handle.combine(&arrived, &mut sums)?;

    let right = |row: &[f32], sum: &[f32]| row.iter().zip(sum).all(|(x, y)| *y == 2.0 * uses as f32 * x);
    let wrong = rows.chunks(HIDDEN).zip(sums.chunks(HIDDEN)).filter(|(row, sum)| !right(row, sum)).count();
    println!("rank {}: {} rows came, {} tokens are wrong", comm.rank, arrived.count(), wrong);
    Ok(wrong)
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("moecomm-example: {error}");
            ExitCode::FAILURE
        }
    }
}
