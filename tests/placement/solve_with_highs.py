"""Solves every .lp file of a folder with HiGHS and prints its name and optimum, or infeasible.

For StepSearch.EqualsTheIlpOfHighs_slow. Needs the wheel highspy.
"""

import pathlib
import sys

import highspy

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.lp")):
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 1e-9)
    solver.readModel(str(path))
    solver.run()
    solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    print(path.stem, solver.getInfo().objective_function_value if solved else "infeasible")
