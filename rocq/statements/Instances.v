(* Instances of rules.  Each is an equation between sides; here it is written as a side that is 0.

   A proof is a sum of such zeros, each times a side: left - right + sum_i times_i zero_i has the normal form 0.
   So neither order nor position of steps matters, and `part` and linearity need no rule. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements.
Import ListNotations.
Open Scope R_scope.

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
| Premise (i : nat)                                         (* what is assumed at this theta *)
| PremiseGradient (i : nat)                                 (* what is assumed for every theta: used near this one *)
| Cited (i : nat).                                          (* an earlier theorem *)

Record premises := Premises {
  equal_now : list (side * side); equal_always : list (list gterm * list gterm);
  batch_size : option (nat * bool) }.  (* the parameter n *)

Definition attach : ep -> ep := emap (fun v => match v with Sample z b _ => Sample z b false | _ => v end).
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
Definition steady (v : var) : bool := match v with Sample z (Fn _ _) false => one_position z | _ => true end.
Definition smooth : ep -> bool := within steady.
Definition at_slots (g : slot -> bool) (v : var) : bool := match v with Sample z _ _ => g z | Par _ _ => true end.
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
Fixpoint log_derivative_side (l : list gterm) : option side :=
  match l with
  | [] => Some []
  | (_, None) :: l => log_derivative_side l
  | (c, Some (i, m, a)) :: l =>
      match log_derivative_side l with
      | Some rest => guard (smooth a)
          (match m with Mq => map (fun z => (c, [Mean i Mq (mul (tidy a) (var_ (score z)))])) (slots i) | _ => [] end
            ++ (c, [MeanGradient i m a]) :: rest)
      | None => None end end.

(* ---------- independence ---------- *)
(* a term as its factor in one slot, and the rest *)
Definition at_slot (z : slot) (v : var) : bool := match v with Sample y _ _ => same_slot z y | Par _ _ => false end.
Definition elsewhere (z : slot) (v : var) : bool := at_slots (except (same_slot z)) v.
Definition cut (z : slot) (t : term) : term * term :=
  let '(c, m, e) := t in
  ((1%Q, filter (fun '(v, _) => at_slot z v) m, filter (fun '(_, k) => negb (mwithin (elsewhere z) k)) e),
   (c, filter (fun '(v, _) => negb (at_slot z v)) m, filter (fun '(_, k) => mwithin (elsewhere z) k) e)).
(* what is the same of one position in a slot as of a single sample *)
Definition movable (z : slot) (v : var) : bool :=
  match v with Sample y Length _ => false | Sample y _ _ => same_slot z y && negb (of_steps y) | Par _ _ => true end.
Definition to_whole (v : var) : var :=
  match v with Sample _ Length _ | Par _ _ => v | Sample _ b sg => Sample Whole b sg end.
Definition moved_there (v : var) : bool := match v with Sample Whole _ _ | Par _ _ => true | _ => false end.
Definition adds_up (z : slot) (v : var) : bool :=
  match v with Sample _ Length _ | Sample _ Any _ | Par _ _ => false | Sample y _ _ => same_slot z y end.
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
Definition sums_up (b : base) : bool := match b with K1 | W | LogQ | Length | Score | Given _ => true | _ => false end.
(* the length of a step is 1 *)
Definition at_step (z : slot) (b : base) (sg : bool) : ep :=
  match z, b with Now, Length => one | _, _ => var_ (Sample z b sg) end.
Definition put_parts (v : var) : option ep :=
  match v with
  | Sample Whole b sg => guard (sums_up b) (add (at_step Past b sg) (add (at_step Now b sg) (at_step Future b sg)))
  | Sample Now Length _ => Some one
  | _ => None end.
(* 1/T stays as it is *)
Fixpoint mparts (m : mon) : ep :=
  match m with
  | [] => one
  | (v, k) :: m => mul (match put_parts v with
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
Definition of_whole (a : ep) : bool := within (at_slots (same_slot Whole)) a.
Definition not_of_steps (a : ep) : bool := within (at_slots (fun z => negb (of_steps z))) a.

Definition zero_of (pr : premises) (known : list side) (r : rule) : option side :=
  match r with
  | ChainRule i m L => guard (smooth L) (same (MeanGradient i m L) (only (Mean i m (attach (derivative L)))))
  | StopGradient i m a => Some (same (Mean i m a) (only (Mean i m (attach a))))
  | LogDerivative l => option_map (same (Gradient l)) (log_derivative_side l)
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
  | PartsOfASum i m a => match eparts a with
      | Some b => guard (stepwise i) (same (Mean i m a) (only (Mean i m b))) | None => None end
  | Exchange i m b c a =>
      guard (stepwise i && sums_up b && sums_up c && not_of_steps a)
        (same (Mean i m (mul (tidy a) (mul (at_step Now b false) (at_step Future c false))))
          (only (Mean i m (mul (tidy a) (mul (at_step Past b false) (at_step Now c false))))))
  | Independence i m t => if probability m then option_map (same (Mean i m [t])) (apart pr i m t) else None
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

Definition holds (pr : premises) : Prop :=
  (forall a b, In (a, b) (equal_now pr) -> dside a = dside b) /\
  (forall a b, In (a, b) (equal_always pr) -> locally (theta S) (fun t => moved S par a t = moved S par b t)) /\
  (forall j nz, batch_size pr = Some (j, nz) -> par j nz = INR (size S)).

Lemma only_ok x : dside (only x) = datom x.
Proof. cbn [only Statements.dside dproduct]. rewrite one_ok by apply penv_ok. ring. Qed.
Lemma same_ok x b : datom x = dside b -> dside (same x b) = 0.
Proof. intros H. unfold same. rewrite app_ok, (minus_ok S par par_ok), only_ok, H. ring. Qed.
Lemma env_sg w z b sg sg' : env w (Sample z b sg) = env w (Sample z b sg').
Proof. unfold Statements.env. destruct z, b, sg, sg'; reflexivity. Qed.
Lemma attach_ok w a : den (env w) (attach a) = den (env w) a.
Proof. apply emap_ok; [apply env_ok|intros [z b sg|]; [apply env_sg|reflexivity]|now intros [[] [] ?|]]. Qed.
Lemma env_sum w z b sg : b <> Length -> b <> Any ->
  env w (Sample z b sg) = Sum (w z) (fun x => each S b (ln (q0 S x)) x).
Proof. intros. unfold Statements.env. destruct z, b, sg; try easy. Qed.

Lemma speaks_within g a : within (at_slots g) a = true -> speaks_of S g (fun w => den (env w) a).
Proof.
  intros H w v A. apply (within_ok (at_slots g)); [|exact H]. intros [z b sg|j nz] Z; [|reflexivity].
  cbn in Z. unfold Statements.env. specialize (A z Z). destruct z, b; cbn [val]; now rewrite A.
Qed.
Lemma constant_env a w : constant a = true -> den (env w) a = den (penv par) a.
Proof. apply within_ok. intros v. apply env_penv. Qed.
Lemma scaled_ok c l : dside (map (fun x => (c, [x])) l) = den (penv par) c * dside (map (fun x => (one, [x])) l).
Proof. induction l as [|x l IH]; cbn [map Statements.dside dproduct]; [ring|]. rewrite IH, one_ok. ring. Qed.
End Soundness.
