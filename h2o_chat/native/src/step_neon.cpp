#include "lanes_neon.h"
#include "step.h"
#include "compare.h"

const Form form_neon = {decode, embed, before, after, head, compare};
