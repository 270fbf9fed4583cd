#ifndef COMMON_ACCEL_ACCEL_SUMS_H
#define COMMON_ACCEL_ACCEL_SUMS_H

/* Partial sums of Down of a back end that divides it among work groups: the memory account has room for them (common/plan/budget.h), and
 * no back end takes more. f32[ACCEL_SLICES][ACCEL_SLICE_TOKENS][d_model]. */
#define ACCEL_SLICES       64 /* of the neurons of an FFN, at most */
#define ACCEL_SLICE_TOKENS 8  /* whose slices are there at a time */

#endif
