//! Publishers and subscribers of libzmq, as an agent of Pubstorm.

fn main() {}
