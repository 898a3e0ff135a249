(* Instances of rules.  Each is an equation between sides; here it is written as a side that is 0.

   A proof is a sum of such zeros, each times a side: left - right + sum_i times_i zero_i has the normal form 0.
   So neither order nor position of steps matters, and `part` and linearity need no rule. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements.
Import ListNotations.
Open Scope R_scope.

(* A cell: for some regions, are samples in them (true) or not?  A bound of it is at least 0 there: e, or -e; so is a fact. *)
Record choice := Choose { at_slots_of : list slot; number : nat; inside_ : bool }.
Inductive bound := Of (c : choice) | Fact (e : ep).
(* weight square^2 (exp(tangent) - 1 - tangent) times bounds: at least 0 in a cell *)
Record cell_row := CellRow { heavy : term; bounds : list bound; square_ : ep; tangent_ : ep }.
Inductive rule :=
| ChainRule (i : index) (m : measure) (L : ep)              (* E_m[grad L] = sum_z E_m[(dL/dlog q_z) s_z] *)
| StopGradient (i : index) (m : measure) (a : ep)           (* outside of a gradient sg(x) = x *)
| LogDerivative (l : list gterm)                            (* grad c E_m[a] = c (E_m[grad a] + [m = q] sum_z E_q[a s_z]) *)
| ChangeOfMeasure (i : index) (m n : measure) (a : ep)      (* E_m[a] = E_n[a m/n], slot by slot *)
| ScoreMeanZero (i : index) (z : slot) (c : ep)             (* E_q[c s_z] = 0 where c does not depend on z *)
| RatioMeanOne (i : index) (z : slot) (m n : measure) (c : ep)   (* E_m[c (n/m)_z] = E_m[c] likewise *)
| Normalisation (i : index) (m : measure) (c : ep)          (* E_m[c] = c *)
| SumOverSteps (m : measure) (b : base) (a : ep)            (* E_m[a V] = E_m[sum_t a V_t] where a speaks of the whole *)
| PartsOfASum (i : index) (m : measure) (a : ep)            (* along a sequence V = V_past + V_now + V_future *)
| Exchange (i : index) (m : measure) (b c : base) (a : ep)  (* sum_t B_t sum_{u>t} C_u = sum_u C_u sum_{t<u} B_t *)
| Independence (i : index) (m : measure) (t : term)         (* E_m[a(self) b(others)] = E_m[a] E_m[b], and the moments of sums *)
| NameSlope (i : index) (m : measure) (zs : list slot) (k : nat) (b : ep)   (* E_m[b l'] = E_m[b exp(-l) e'] for l = ln e, and E_m[b v'] = E_m[b e'] for v = e *)
| ByDefinition (i : index) (m : measure) (zs : list slot) (k : nat) (c : case) (b : ep)   (* E_m[b (e exp(-l) - 1)] = 0 for l = ln e, and E_m[b (v - e)] = 0 for v = e *)
| Indicators (i : index) (m : measure) (a : ep)             (* a region is 0 or 1: E_m[B^2 ..] = E_m[B ..] *)
| InCell (i : index) (m : measure) (b x : ep) (cell : list choice) (l : list cell_row)   (* E_m[b P x] = 0, P the product of a cell, where x = 0 *)
| Premise (i : nat)                                         (* what is assumed at this theta *)
| PremiseGradient (i : nat)                                 (* what is assumed for every theta: used near this one *)
| Cited (i : nat).                                          (* an earlier theorem *)

(* What names stand for: 1 where e > 0 and 0 elsewhere; ln e; or e.  The name of number i is defined by the i-th, in its slots. *)
Inductive standing := Region | Log | Let.
Record definition := Define { spoken : list slot; stands_for : standing; defined_by : ep }.
(* What is assumed of the samples that a mean speaks of. *)
Inductive fact :=
| Settled (m : measure) (i : index) (v : var)      (* none enters or leaves the regions of a name as theta moves nearby *)
| Apart (m : measure) (i : index) (e : ep)         (* none lies where e = 0 *)
| AtLeastZero (m : measure) (i : index) (e : ep)   (* e >= 0 at each *)
| Positive (m : measure) (i : index) (e : ep)      (* e > 0 at each *)
| Above (j : nat).                                 (* a parameter is positive *)
Record premises := Premises {
  equal_now : list (side * side); equal_always : list (list gterm * list gterm);
  batch_size : option (nat * bool);   (* the parameter n *)
  definitions : list definition;
  facts : list fact }.

Definition attach : ep -> ep := emap (fun v => match v with Sample z b _ => Sample z b false | Named zs i c _ => Named zs i c false | _ => v end).
Definition logd (z : slot) (m : measure) : lin :=
  let v b c := (c, [(Sample z b false, 1%Z)]) in
  match m with
  | Mq => [v LogQ 1%Q] | Mp => [v LogQ 1%Q; v K1 (-1)%Q] | Mmu => [v LogQ 1%Q; v W (-1)%Q] | _ => [] end.
Definition lopp (e : lin) : lin := map (fun '(c, m) => (Qopp c, m)) e.
Definition log_ratio (z : slot) (m n : measure) : lin := ladd (logd z m) (lopp (logd z n)).
Definition ratio_at (z : slot) (m n : measure) : ep := exp_ (log_ratio z m n).
Definition ratio (i : index) (m n : measure) : ep :=
  exp_ (fold_right (fun z acc => ladd (log_ratio z m n) acc) [] (factors_of i)).
Definition guard {A} (b : bool) (a : A) : option A := if b then Some a else None.
Definition only (x : atom) : side := [(one, [x])].
Definition same (x : atom) (b : side) : side := only x ++ minus b.
Lemma Some_inj {A} (a b : A) : Some a = Some b -> a = b. Proof. now intros [=]. Qed.
(* the gradient of a sum of functions over several positions is no multiple of their score function *)
Definition steady (v : var) : bool :=
  match v with Sample z (Fn _ _) false => one_position z | _ => true end.
Definition smooth : ep -> bool := within steady.
Definition at_slots (g : slot -> bool) (v : var) : bool :=
  match v with Sample z _ _ => g z | Par _ _ => true | Named zs _ _ _ => forallb g zs end.
Definition avoids (z : slot) : ep -> bool := within (at_slots (except (same_slot z))).
Definition among (z : slot) (i : index) : bool := existsb (same_slot z) (slots i).
(* does c speak only of what does not depend on z: of what comes before it, and of other samples? *)
Definition before (z : slot) (y : slot) : bool :=
  match z, y with Now, Past | Future, Past | Future, Now => true | _, _ => false end.
Definition upstream (i : index) (z : slot) (c : ep) : bool :=
  match i, z with
  | Steps, (Now | Future) => within (at_slots (before z)) c
  | BatchSteps, (Now | Future) => within (at_slots (fun y => before z y || same_slot Others y)) c
  | BatchSteps, Others => avoids z c
  | (Steps | BatchSteps), _ => false
  | _, _ => among z i && avoids z c end.
(* sums in the place of variables, also in exponents; what divides stays as it is *)
Section Parts.
Variable put : var -> option ep.
Fixpoint mparts (m : mon) : ep :=
  match m with
  | [] => one
  | (v, k) :: m => mul (match put v with
      | Some a => if (0 <=? k)%Z then epow a (Z.to_nat k) else [(1%Q, [(v, k)], [])]
      | None => [(1%Q, [(v, k)], [])] end) (mparts m)
  end.
Definition lparts (e : lin) : option lin :=
  polynomial (fold_right (fun '(c, m) acc => add (scale (c, [], []) (mparts m)) acc) [] e).
Fixpoint eparts (a : ep) : option ep :=
  match a with
  | [] => Some []
  | (c, m, e) :: a => match lparts e, eparts a with
      | Some f, Some b => Some (add (scale (c, [], f) (mparts m)) b) | _, _ => None end end.
Variable env : var -> R.
Hypothesis env_ok : forall v, invertible v = true -> env v <> 0.
Hypothesis put_ok : forall v a, put v = Some a -> den env a = env v.
Lemma power_up v x k : (0 <=? k)%Z = true -> power v x k = x ^ Z.to_nat k.
Proof.
  intros K. apply Z.leb_le in K. unfold power. destruct (invertible v); [|reflexivity].
  rewrite <- (Z2Nat.id k K) at 1. symmetry. apply pow_powerRZ.
Qed.
Lemma mparts_ok m : den env (mparts m) = dmon env m.
Proof.
  induction m as [|[v k] m IH]; cbn [mparts dmon]; [now rewrite one_ok|]. rewrite mul_ok, IH by exact env_ok. f_equal.
  assert (K : den env [(1%Q, [(v, k)], [])] = power v (env v) k) by (cbn [den dterm dmon dlin]; rewrite exp_0, Q2R_1; ring).
  destruct (put v) as [a|] eqn:A; [|exact K]. destruct (0 <=? k)%Z eqn:P; [|exact K].
  rewrite power_up, epow_ok, (put_ok v a A) by first [exact P|exact env_ok]. reflexivity.
Qed.
Lemma lparts_ok e f : lparts e = Some f -> dlin env f = dlin env e.
Proof.
  unfold lparts. intros H. rewrite (polynomial_ok env _ f H). clear H. induction e as [|[c m] e IH]; [reflexivity|].
  cbn [fold_right dlin]. rewrite add_ok, scale_ok, mparts_ok, IH by exact env_ok. cbn [dterm dmon dlin]. rewrite exp_0. ring.
Qed.
Lemma eparts_ok a b : eparts a = Some b -> den env b = den env a.
Proof.
  revert b; induction a as [|[[c m] e] a IH]; intros b; cbn [eparts]; [now intros [= <-]|].
  destruct (lparts e) as [f|] eqn:L; [|discriminate]. destruct (eparts a) as [d|]; [|discriminate]. intros [= <-].
  rewrite add_ok, scale_ok, mparts_ok, (IH d eq_refl) by exact env_ok. cbn [den dterm dmon]. rewrite (lparts_ok e f L). ring.
Qed.
End Parts.
(* what defines a name, in its slots: a definition of whole samples holds of each sample of a batch *)
Definition movable (z : slot) (v : var) : bool :=
  match v with
  | Sample y Length _ => false | Sample y _ _ | Named [y] _ _ _ => same_slot z y && negb (of_steps y)
  | Par _ _ => true | Named _ _ _ _ => false end.
Definition to_slot (z : slot) (v : var) : var :=
  match v with
  | Sample _ Length _ | Par _ _ => v | Sample _ b sg => Sample z b sg | Named zs i c sg => Named (map (fun _ => z) zs) i c sg end.
Definition put_at (z : slot) (v : var) : bool :=   (* what to_slot leaves as it is *)
  match v with Sample y b _ => same_slot z y || match b with Length => true | _ => false end | Par _ _ => true
  | Named [y] _ _ _ => same_slot z y | Named _ _ _ _ => false end.
Definition same_slots (zs ys : list slot) : bool := match ncmp (map scode zs) (map scode ys) with Eq => true | _ => false end.
Definition body (pr : premises) (zs : list slot) (k : nat) : option (standing * ep) :=
  match nth_error (definitions pr) k with
  | Some (Define ys s e) =>
      if same_slots zs ys then Some (s, e) else
      match zs, ys with
      | [z], [Whole] => let f := emap (to_slot z) e in
          if negb (of_steps z) && within (movable Whole) e && within (put_at z) f then Some (s, f) else None
      | _, _ => None end
  | None => None end.
(* what does not move with theta: log p is log q - k1, and log q there is what moves *)
Definition split_log (v : var) : option ep :=
  match v with
  | Sample z ((K1 | W | ToOld) as b) false =>
      Some (add (var_ (Sample z LogQ false)) (sub (var_ (Sample z b true)) (var_ (Sample z LogQ true))))
  | _ => None end.
Fixpoint fixed_within (n : nat) (pr : premises) (v : var) : bool :=
  match v with
  | Sample _ (K1 | W | LogQ | ToOld | Fn _ _) sg => sg
  | Named zs k (Still | Moving) sg => sg || match n, body pr zs k with
      | Datatypes.S n, Some (_, e) => match eparts split_log e with Some f => within (fixed_within n pr) f | None => false end
      | _, _ => false end
  | _ => true end.
(* names that have a slope: those of elements, and of logs where the element is positive *)
Definition above_zero (e : ep) : bool :=
  existsb (fun '(_, m, _) => match m with [] => true | _ => false end) e
  && forallb (fun '(c, m, _) => (0 <? Qnum c)%Z && forallb (fun '(_, k) => (0 <=? k)%Z && Z.even k) m) e.
Definition fcmp (x y : fact) : bool :=
  match x, y with
  | Settled m i v, Settled n j u => match pcmp m n, icmp i j, vcmp v u with Eq, Eq, Eq => true | _, _, _ => false end
  | Apart m i e, Apart n j f | AtLeastZero m i e, AtLeastZero n j f | Positive m i e, Positive n j f =>
      match pcmp m n, icmp i j, ecmp (tidy e) (tidy f) with Eq, Eq, Eq => true | _, _, _ => false end
  | Above i, Above j => Nat.eqb i j
  | _, _ => false end.
Definition assumes (pr : premises) (x : fact) : bool := existsb (fcmp x) (facts pr).
Definition positive_at (pr : premises) (m : measure) (i : index) (e : ep) : bool := above_zero e || assumes pr (Positive m i e).
Fixpoint slope_within (n : nat) (pr : premises) (m : measure) (i : index) (v : var) : bool :=
  match v, n with
  | Named zs k Moving false, Datatypes.S n => match body pr zs k with
      | Some (Let, e) => smooth e && within (slope_within n pr m i) e
      | Some (Log, e) => smooth e && within (slope_within n pr m i) e && positive_at pr m i e
      | _ => false end
  | Named _ _ Moving false, _ => false
  | _, _ => true end.
Definition depth (pr : premises) : nat := List.length (definitions pr).
Definition has_slope (pr : premises) : measure -> index -> var -> bool := slope_within (depth pr) pr.
(* names whose regions no sample enters or leaves nearby *)
Fixpoint calm_within (n : nat) (pr : premises) (m : measure) (i : index) (v : var) : bool :=
  match v with
  | Named zs k Still false => assumes pr (Settled m i v) || fixed_within (depth pr) pr v
  | Named zs k Moving false => match n, body pr zs k with
      | Datatypes.S n, Some (Log, e) | Datatypes.S n, Some (Let, e) => within (calm_within n pr m i) e
      | _, _ => false end
  | _ => true end.
Definition is_calm (pr : premises) : measure -> index -> var -> bool := calm_within (depth pr) pr.
Fixpoint log_derivative_side (pr : premises) (l : list gterm) : option side :=
  match l with
  | [] => Some []
  | (_, None) :: l => log_derivative_side pr l
  | (c, Some (i, m, a)) :: l =>
      match log_derivative_side pr l with
      | Some rest => guard (smooth a && within (has_slope pr m i) a && within (is_calm pr m i) a)
          (match m with Mq => map (fun z => (c, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i) | _ => [] end
            ++ (c, [MeanGradient i m a]) :: rest)
      | None => None end end.

(* ---------- independence ---------- *)
(* a term as its factor in one slot, and the rest *)
Definition at_slot (z : slot) (v : var) : bool :=
  match v with Sample y _ _ | Named [y] _ _ _ => same_slot z y | _ => false end.
Definition elsewhere (z : slot) (v : var) : bool := at_slots (except (same_slot z)) v.
Definition cut (z : slot) (t : term) : term * term :=
  let '(c, m, e) := t in
  ((1%Q, filter (fun '(v, _) => at_slot z v) m, filter (fun '(_, k) => negb (mwithin (elsewhere z) k)) e),
   (c, filter (fun '(v, _) => negb (at_slot z v)) m, filter (fun '(_, k) => mwithin (elsewhere z) k) e)).
(* what is the same of one position in a slot as of a single sample: what may be moved there *)
Definition to_whole : var -> var := to_slot Whole.
Definition moved_there (v : var) : bool := match v with Sample Whole _ _ | Par _ _ | Named [Whole] _ _ _ => true | _ => false end.
Definition adds_up (z : slot) (v : var) : bool :=
  match v with Sample _ Length _ | Sample _ Any _ | Par _ _ | Named _ _ _ _ => false | Sample y _ _ => same_slot z y end.
Fixpoint factors (z : slot) (m : mon) : option (list var) :=
  match m with
  | [] => Some []
  | (v, k) :: m =>
      match adds_up z v, k, factors z m with
      | true, 1%Z, Some l => Some (to_whole v :: l) | true, 2%Z, Some l => Some (to_whole v :: to_whole v :: l)
      | _, _, _ => None end end.
Definition positions (pr : premises) (i : index) (z : slot) : option ep :=   (* n - 1, n - 2 *)
  match batch_size pr, i, z with
  | Some (j, nz), (Batch | BatchSteps), Others => Some (sub (var_ (Par j nz)) (konst 1))
  | Some (j, nz), Pair, Rest => Some (sub (var_ (Par j nz)) (konst 2))
  | _, _, _ => None end.
Definition one_slot (pr : premises) (i : index) (m : measure) (z : slot) (t : term) : option side :=
  if one_position z then
    let a := emap to_whole [t] in
    guard (within (movable z) [t] && within moved_there a) [(one, [Mean Single m a])]
  else match t, positions pr i z with
    | (c, [], []), _ => guard (qz (Qred (c - 1))) [(one, [])]
    | (c, k, []), Some n =>
        match qz (Qred (c - 1)), factors z k with
        | true, Some [a] => Some [(n, [Mean Single m (var_ a)])]
        | true, Some [a; b] => Some [(n, [Mean Single m (mul (var_ a) (var_ b))]);
            (mul n (sub n one), [Mean Single m (var_ a); Mean Single m (var_ b)])]
        | _, _ => None end
    | _, _ => None end.
Fixpoint by_slots (pr : premises) (i : index) (m : measure) (zs : list slot) (t : term) : option side :=
  match zs with
  | [] => guard (constant [t]) [([t], [])]
  | z :: zs =>
      let '(a, b) := cut z t in
      match one_slot pr i m z a, by_slots pr i m zs b with
      | Some x, Some y => guard (within (at_slots (same_slot z)) [a] && avoids z [b]) (stimes x y)
      | _, _ => None end end.

(* one step of one sequence, beside the other sequences *)
Definition beside_others (pr : premises) (m : measure) (t : term) : option side :=
  let '(a, b) := cut Others t in
  match one_slot pr BatchSteps m Others a with
  | Some x => guard (within (at_slots (same_slot Others)) [a] && avoids Others [b]) (stimes x [(one, [Mean Steps m [b]])])
  | None => None end.
Definition apart (pr : premises) (i : index) (m : measure) (t : term) : option side :=
  match i with
  | Steps => None | BatchSteps => beside_others pr m t | _ => by_slots pr i m (slots i) t end.

(* ---------- sums along a sequence ---------- *)
Definition sums_up (b : base) : bool := match b with K1 | W | LogQ | ToOld | Length | Score | Given _ => true | _ => false end.
(* the length of a step is 1 *)
Definition at_step (z : slot) (b : base) (sg : bool) : ep :=
  match z, b with Now, Length => one | _, _ => var_ (Sample z b sg) end.
Definition put_parts (v : var) : option ep :=
  match v with
  | Sample Whole b sg => guard (sums_up b) (add (at_step Past b sg) (add (at_step Now b sg) (at_step Future b sg)))
  | Sample Now Length _ => Some one
  | _ => None end.
Definition of_whole (a : ep) : bool := within (at_slots (same_slot Whole)) a.
Definition not_of_steps (a : ep) : bool := within (at_slots (fun z => negb (of_steps z))) a.

(* ---------- names ---------- *)
Definition inverse_name (zs : list slot) (k : nat) (c : case) : ep := exp_ [((-1)%Q, [(Named zs k c false, 1%Z)])].
Definition name_slope (pr : premises) (m : measure) (i : index) (zs : list slot) (k : nat) : option ep :=
  if has_slope pr m i (Named zs k Moving false) then match body pr zs k with
    | Some (Log, e) => Some (mul (inverse_name zs k Moving) (derivative e))
    | Some (Let, e) => Some (derivative e)
    | _ => None end else None.
Definition gap (pr : premises) (m : measure) (i : index) (zs : list slot) (k : nat) (c : case) : option ep :=
  match c, body pr zs k with
  | (Still | Moving), Some (Log, e) => guard (positive_at pr m i e) (sub (mul (tidy e) (inverse_name zs k c)) one)
  | (Still | Moving), Some (Let, e) => Some (sub (var_ (Named zs k c false)) (tidy e))
  | _, _ => None end.
(* B for B^n *)
Definition is_region (pr : premises) (v : var) : bool :=
  match v with Named zs k Still _ => match body pr zs k with Some (Region, _) => true | _ => false end | _ => false end.
Definition reduce (pr : premises) (a : ep) : ep :=
  tidy (map (fun '(c, m, e) => (c, map (fun '(v, n) => (v, if is_region pr v && (1 <=? n)%Z then 1%Z else n)) m, e)) a).
(* what is at least 0 in a cell *)
Definition region_of (pr : premises) (c : choice) : option ep :=
  match body pr (at_slots_of c) (number c) with Some (Region, e) => Some e | _ => None end.
Definition same_choice (c d : choice) : bool :=
  same_slots (at_slots_of c) (at_slots_of d) && Nat.eqb (number c) (number d) && Bool.eqb (inside_ c) (inside_ d).
Definition bound_of (pr : premises) (m : measure) (i : index) (cell : list choice) (b : bound) : option ep :=
  match b with
  | Of c => if existsb (same_choice c) cell then option_map (fun e => if inside_ c then tidy e else opp (tidy e)) (region_of pr c) else None
  | Fact e => guard (assumes pr (AtLeastZero m i e)) (tidy e) end.
Definition strict (pr : premises) (m : measure) (i : index) (b : bound) : bool :=
  match b with
  | Of c => inside_ c || match region_of pr c with Some e => assumes pr (Apart m i e) | None => false end
  | Fact _ => false end.
Definition weighty (pr : premises) (t : term) : bool :=
  let '(c, m, _) := t in
  (0 <? Qnum c)%Z && forallb (fun '(v, k) => match v with
    | Par j true => Z.even k || assumes pr (Above j) | Sample Whole Length _ => true | _ => false end) m.
Fixpoint bounds_of (pr : premises) (m : measure) (i : index) (cell : list choice) (l : list bound) : option ep :=
  match l with
  | [] => Some one
  | b :: l => match bound_of pr m i cell b, bounds_of pr m i cell l with Some e, Some f => Some (mul e f) | _, _ => None end end.
Definition row_of_cell (pr : premises) (m : measure) (i : index) (cell : list choice) (r : cell_row) : option ep :=
  match bounds_of pr m i cell (bounds r), polynomial (tangent_ r) with
  | Some e, Some u => guard (weighty pr (heavy r))
      (mul (mul [heavy r] (mul (mul (tidy (square_ r)) (tidy (square_ r)))
        (match tangent_ r with [] => one | a => sub (sub (exp_ u) one) (tidy a) end))) e)
  | _, _ => None end.
Fixpoint rows_of_cell (pr : premises) (m : measure) (i : index) (cell : list choice) (l : list cell_row) : option ep :=
  match l with
  | [] => Some []
  | r :: l => match row_of_cell pr m i cell r, rows_of_cell pr m i cell l with Some e, Some f => Some (add e f) | _, _ => None end end.
Definition strictly (pr : premises) (m : measure) (i : index) (r : cell_row) : bool :=
  equal (square_ r) one && (match tangent_ r with [] => true | _ => false end) && forallb (strict pr m i) (bounds r).
Definition put_cell (cell : list choice) (v : var) : option ep :=
  match v with
  | Named zs k Still _ => option_map (fun c => konst (if inside_ c then 1 else 0)%Q)
      (find (fun c => same_slots zs (at_slots_of c) && Nat.eqb k (number c)) cell)
  | _ => None end.
Definition product_of (cell : list choice) : ep :=
  fold_right (fun c acc => let v := var_ (Named (at_slots_of c) (number c) Still false) in
    mul (if inside_ c then v else sub one v) acc) one cell.
Definition vanishes_in (pr : premises) (m : measure) (i : index) (x : ep) (cell : list choice) (l : list cell_row) : bool :=
  forallb (fun c => match region_of pr c with Some _ => true | None => false end) cell &&
  match rows_of_cell pr m i cell l with
  | Some total => match eparts (put_cell cell) total, eparts (put_cell cell) (tidy x) with
      | Some T, Some X => is_zero (reduce pr T) && existsb (strictly pr m i) l || is_zero (reduce pr (add T (mul X X)))
      | _, _ => false end
  | None => false end.

Definition zero_of (pr : premises) (known : list side) (r : rule) : option side :=
  match r with
  | ChainRule i m L => guard (smooth L && within (has_slope pr m i) L) (same (MeanGradient i m L) (only (Mean i m (attach (derivative L)))))
  | StopGradient i m a => Some (same (Mean i m a) (only (Mean i m (attach a))))
  | LogDerivative l => option_map (same (Gradient l)) (log_derivative_side pr l)
  | ChangeOfMeasure i m n a =>
      guard (summed m && summed n) (same (Mean i m a) (only (Mean i n (mul (tidy a) (ratio i m n)))))
  | ScoreMeanZero i z c => guard (upstream i z c) (only (Mean i Mq (mul (tidy c) (var_ (score z)))))
  | RatioMeanOne i z m n c =>
      guard (probability m && probability n && upstream i z c)
        (same (Mean i m (mul (tidy c) (ratio_at z n m))) (only (Mean i m c)))
  | Normalisation i m c => guard (normed m && constant c && negb (stepwise i)) (same (Mean i m c) [(c, [])])
  | SumOverSteps m b a =>
      guard (sums_up b && of_whole a)
        (same (Mean Single m (mul (tidy a) (var_ (Sample Whole b false)))) (only (Mean Steps m (mul (tidy a) (at_step Now b false)))))
  | PartsOfASum i m a => match eparts put_parts a with
      | Some b => guard (stepwise i) (same (Mean i m a) (only (Mean i m b))) | None => None end
  | Exchange i m b c a =>
      guard (stepwise i && sums_up b && sums_up c && not_of_steps a)
        (same (Mean i m (mul (tidy a) (mul (at_step Now b false) (at_step Future c false))))
          (only (Mean i m (mul (tidy a) (mul (at_step Past b false) (at_step Now c false))))))
  | Independence i m t => if probability m then option_map (same (Mean i m [t])) (apart pr i m t) else None
  | NameSlope i m zs k b => option_map (fun d => same (Mean i m (mul (tidy b) (var_ (Named zs k Slope false))))
      (only (Mean i m (mul (tidy b) d)))) (name_slope pr m i zs k)
  | ByDefinition i m zs k c b => option_map (fun x => only (Mean i m (mul (tidy b) x))) (gap pr m i zs k c)
  | Indicators i m a => Some (same (Mean i m a) (only (Mean i m (reduce pr a))))
  | InCell i m b x cell l => guard (vanishes_in pr m i x cell l) (only (Mean i m (mul (tidy b) (mul (product_of cell) (tidy x)))))
  | Premise i => option_map (fun '(a, b) => a ++ minus b) (nth_error (equal_now pr) i)
  | PremiseGradient i =>
      option_map (fun '(a, b) => same (Gradient a) (only (Gradient b))) (nth_error (equal_always pr) i)
  | Cited i => nth_error known i end.

(* ---------- values ---------- *)
Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok). Notation penv_ok := (penv_ok par par_ok).

Definition indicator (x : R) : R := if Rlt_dec 0 x then 1 else 0.
Definition meant (d : definition) (r t : R) (w : world S) : R :=
  match stands_for d with
  | Region => indicator (den (fun v => val S par v r r w) (defined_by d))
  | Log => ln (den (fun v => val S par v r t w) (defined_by d))
  | Let => den (fun v => val S par v r t w) (defined_by d) end.
Definition defined (l : list definition) : Prop :=
  forall k d, nth_error l k = Some d -> forall r t w, names S k r t (map w (spoken d)) = meant d r t w.
Definition settled (m : measure) (i : index) (v : var) : Prop :=
  forall w, reached S m i w -> locally (theta S) (fun t => val S par v t t w = val S par v (theta S) t w).
Definition is_so (x : fact) : Prop :=
  match x with
  | Settled m i v => settled m i v
  | Apart m i e => forall w, reached S m i w -> den (env w) e <> 0
  | AtLeastZero m i e => forall w, reached S m i w -> 0 <= den (env w) e
  | Positive m i e => forall w, reached S m i w -> 0 < den (env w) e
  | Above j => 0 < par j true end.
Definition holds (pr : premises) : Prop :=
  (forall a b, In (a, b) (equal_now pr) -> dside a = dside b) /\
  (forall a b, In (a, b) (equal_always pr) -> locally (theta S) (fun t => moved S par a t = moved S par b t)) /\
  (forall j nz, batch_size pr = Some (j, nz) -> par j nz = INR (size S)) /\
  defined (definitions pr) /\ (forall x, In x (facts pr) -> is_so x).

Lemma only_ok x : dside (only x) = datom x.
Proof. cbn [only Statements.dside dproduct]. rewrite one_ok by apply penv_ok. ring. Qed.
Lemma same_ok x b : datom x = dside b -> dside (same x b) = 0.
Proof. intros H. unfold same. rewrite app_ok, (minus_ok S par par_ok), only_ok, H. ring. Qed.
Lemma env_sg w z b sg sg' : env w (Sample z b sg) = env w (Sample z b sg').
Proof. unfold Statements.env. destruct z, b, sg, sg'; reflexivity. Qed.
Lemma attach_ok w a : den (env w) (attach a) = den (env w) a.
Proof.
  apply emap_ok; [apply env_ok|intros [z b sg|j nz|zs j c []]; [apply env_sg|reflexivity| |reflexivity]|now intros [[] [] ?| |]].
  now destruct c.
Qed.
Lemma env_sum w z b sg : b <> Length -> b <> Any ->
  env w (Sample z b sg) = Sum (w z) (fun x => each S b (ln (q0 S x)) x).
Proof. intros. unfold Statements.env. destruct z, b, sg; try easy. Qed.

Lemma speaks_within g a : within (at_slots g) a = true -> speaks_of S g (fun w => den (env w) a).
Proof.
  intros H w v A. apply (within_ok (at_slots g)); [|exact H]. intros [z b sg|j nz|zs j c sg] Z; [|reflexivity|].
  - cbn in Z. unfold Statements.env. specialize (A z Z). destruct z, b; cbn [val]; now rewrite A.
  - cbn in Z. unfold Statements.env. cbn [val]. replace (map v zs) with (map w zs); [reflexivity|].
    apply map_ext_in. intros z I. apply A. rewrite forallb_forall in Z. now apply Z.
Qed.
Lemma constant_env a w : constant a = true -> den (env w) a = den (penv par) a.
Proof. apply within_ok. intros v. apply env_penv. Qed.
Lemma scaled_ok c l : dside (map (fun x => (c, [x])) l) = den (penv par) c * dside (map (fun x => (one, [x])) l).
Proof. induction l as [|x l IH]; cbn [map Statements.dside dproduct]; [ring|]. rewrite IH, one_ok. ring. Qed.
(* what defines a name is what it is worth *)
Definition worth_as (s : standing) (x : R) : R := match s with Region => indicator x | Log => ln x | Let => x end.
Lemma body_ok pr zs k s e : defined (definitions pr) -> body pr zs k = Some (s, e) -> forall r t w,
  names S k r t (map w zs) = worth_as s (den (fun v => val S par v r (match s with Region => r | _ => t end) w) e).
Proof.
  intros D. unfold body. destruct (nth_error (definitions pr) k) as [[ys s' f]|] eqn:N; [|discriminate]. specialize (D k _ N).
  unfold meant in D. cbn [spoken stands_for defined_by] in D.
  assert (M : forall r t v, names S k r t (map v ys) = worth_as s' (den (fun u => val S par u r (match s' with Region => r | _ => t end) v) f))
    by (intros r t v; rewrite D; now destruct s'). clear D.
  destruct (same_slots zs ys) eqn:C.
  - unfold same_slots in C. destruct (ncmp _ _) eqn:Q; try discriminate. apply ncmp_eq, slots_inj in Q. subst ys. intros [= <- <-]. exact (M).
  - destruct zs as [|z [|]]; try discriminate. destruct ys as [|[] [|]]; try discriminate.
    cbv zeta. destruct (_ && _)%bool eqn:G; [|discriminate]. apply andb_prop in G as [G F]. apply andb_prop in G as [O W].
    apply negb_true_iff in O. intros H. injection H as <- <-.
    intros r t w. pose proof (M r t (fun _ => w z)) as K. cbn [map] in *. rewrite K. f_equal. clear K M.
    set (t' := match s' with Region => r | _ => t end). clearbody t'. set (g := fun u => val S par (to_slot z u) r t' w).
    transitivity (den g (emap (to_slot z) f)); [transitivity (den g f)|].
    + apply (within_ok (movable Whole)); [|exact W]. intros [y b sg|j nz|[|y [|]] j c sg] V; try discriminate; try reflexivity; unfold g.
      cbn [movable] in V. destruct b; try discriminate; apply andb_prop in V as [V _]; apply same_slot_eq in V; subst y; destruct z; try discriminate; reflexivity.
    + symmetry. apply emap_ok.
      * intros v V. unfold g. apply val_ok; [exact par_ok|]. destruct v as [[] [] sg|j nz|]; try discriminate; [reflexivity|exact V].
      * intros [y [] sg|j nz|ys j c sg]; try reflexivity. unfold g. cbn [to_slot]. rewrite map_map. reflexivity.
      * intros [y [] sg|j nz|ys j c sg]; try reflexivity; now destruct y, z.
    + apply (within_ok (put_at z)); [|exact F]. intros v V. unfold g. f_equal. destruct v as [y b sg|j nz|[|y [|]] j c sg]; try discriminate; try reflexivity.
      * cbn [put_at] in V. apply orb_prop in V as [V|V]; [apply same_slot_eq in V; subst y; now destruct b|now destruct b].
      * cbn [put_at] in V. apply same_slot_eq in V. now subst y.
Qed.
Lemma split_log_ok v a r t w : split_log v = Some a -> den (fun v => val S par v r t w) a = val S par v r t w.
Proof.
  assert (K : forall v, invertible v = true -> val S par v r t w <> 0) by (intros; now apply val_ok).
  intros H. destruct v as [z [] []| |]; try discriminate; apply Some_inj in H; subst a; rewrite add_ok, sub_ok, !var_ok by exact K;
    destruct z; cbn [val]; rewrite <- Sum_minus, <- Sum_plus; apply Sum_ext; intros x _; cbn [each]; ring.
Qed.
Lemma fixed_within_ok n pr v : defined (definitions pr) -> fixed_within n pr v = true -> forall r t w, val S par v r t w = env w v.
Proof.
  intros D. revert v; induction n as [|n IH]; intros v H r t w.
  - destruct v as [z [] []|j nz|zs k [] []]; try discriminate; try reflexivity; destruct z; reflexivity.
  - destruct v as [z [] []|j nz|zs k [] []]; try discriminate; try reflexivity; try (destruct z; reflexivity); cbn [fixed_within orb] in H;
      destruct (body pr zs k) as [[s e]|] eqn:B; try discriminate; destruct (eparts split_log e) as [f|] eqn:F; try discriminate;
      unfold Statements.env; cbn [val]; rewrite !(body_ok pr zs k s e D B); f_equal;
      (assert (K : forall r t, den (fun v => val S par v r t w) e = den (env w) f) by
        (intros r' t'; rewrite <- (eparts_ok split_log (fun v => val S par v r' t' w)) with (b := f);
          [apply (within_ok (fixed_within n pr)); [|exact H]; intros u U; now apply IH
          |intros; now apply val_ok|intros; now apply split_log_ok|exact F])); now rewrite !K.
Qed.
Lemma settled_here m i v : (forall r t w, val S par v r t w = val S par v (theta S) t w) -> settled m i v.
Proof. intros H w _. exists (mkposreal 1 Rlt_0_1). intros t _. apply H. Qed.
End Soundness.
