"""Parts that learners share: layers and encoders, all working on the last axis, with arrays as their only leaves."""
