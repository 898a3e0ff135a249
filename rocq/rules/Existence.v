(* Names can be given what they stand for in any setting: what is proved of all settings where they stand for it is not
   proved of none.  Each definition speaks of the slots that it says, and of names before its own. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances.
Import ListNotations.
Open Scope R_scope.

Definition values_of_names (S : setting) := nat -> R -> R -> list (list (outcome S)) -> R.
Definition with_names (S : setting) (N : values_of_names S) : setting :=
  {| token := token S; next := next S; more := more S; starts := starts S; here := here S; here_ok := here_ok S;
     theta := theta S; next_q := next_q S; next_p := next_p S; next_mu := next_mu S; next_q_pos := next_q_pos S;
     next_q_sum := next_q_sum S; next_q_diff := next_q_diff S; next_p_pos := next_p_pos S; next_p_sum := next_p_sum S;
     next_mu_pos := next_mu_pos S; next_mu_sum := next_mu_sum S;
     next_old := next_old S; next_old_pos := next_old_pos S; next_old_sum := next_old_sum S; paid := paid S;
     any := any S; fn := fn S; fn_diff := fn_diff S; names := N; size := size S; size_ok := size_ok S |}.

(* ---------- what may define the name of number k ---------- *)
Definition told_before (ys : list slot) (k : nat) (v : var) : bool :=
  match v with
  | Sample z _ _ => existsb (same_slot z) ys | Par _ _ => true
  | Named _ _ Slope _ => false
  | Named zs j _ _ => forallb (fun z => existsb (same_slot z) ys) zs && (j <? k)%nat end.
Fixpoint ordered_from (k : nat) (l : list definition) : bool :=
  match l with [] => true | d :: l => within (told_before (spoken d) k) (defined_by d) && ordered_from (Datatypes.S k) l end.
Definition ordered : list definition -> bool := ordered_from 0.
Lemma ordered_at l j : forall k d, ordered_from j l = true -> nth_error l k = Some d -> within (told_before (spoken d) (j + k)) (defined_by d) = true.
Proof.
  revert j; induction l as [|e l IH]; intros j [|k] d; cbn [ordered_from nth_error]; try discriminate; intros H; apply andb_prop in H as [H1 H2].
  - intros [= ->]. now rewrite Nat.add_0_r.
  - intros N. pose proof (IH (Datatypes.S j) k d H2 N) as K. now rewrite Nat.add_succ_r.
Qed.

Section Existence.
Variable S : setting.
Variable par : nat -> bool -> R.
Variable l : list definition.
Hypothesis l_ok : ordered l = true.
Notation val_with N := (val (with_names S N) par).
(* a world of which some slots are told *)
Fixpoint world_of (ys : list slot) (ls : list (list (outcome S))) (z : slot) : list (outcome S) :=
  match ys, ls with y :: ys, x :: ls => if same_slot z y then x else world_of ys ls z | _, _ => [] end.
Lemma world_of_ok ys (w : world S) z : existsb (same_slot z) ys = true -> world_of ys (map w ys) z = w z.
Proof.
  induction ys as [|y ys IH]; [discriminate|]. cbn [existsb map world_of]. destruct (same_slot z y) eqn:Q; [|exact IH].
  apply same_slot_eq in Q. now subst.
Qed.
Fixpoint build (n : nat) : values_of_names S :=
  match n with
  | O => fun _ _ _ _ => 0
  | Datatypes.S n => fun k r t ls =>
      if Nat.eqb k n then match nth_error l n with Some d => meant (with_names S (build n)) par d r t (world_of (spoken d) ls) | None => 0 end
      else build n k r t ls end.
Lemma build_ok n k r t ls : (k < n)%nat -> build n k r t ls = build (Datatypes.S k) k r t ls.
Proof.
  induction n as [|n IH]; intros K; [lia|]. destruct (Nat.eq_dec k n) as [->|N]; [reflexivity|]. cbn [build].
  replace (Nat.eqb k n) with false by (symmetry; now apply Nat.eqb_neq). rewrite IH by lia. reflexivity.
Qed.
Lemma same_values n k v ys r t (w w' : world S) : (k <= n)%nat -> (forall z, existsb (same_slot z) ys = true -> w z = w' z) ->
  told_before ys k v = true -> val_with (build k) v r t w = val_with (build n) v r t w'.
Proof.
  intros K W. destruct v as [z b sg|j nz|zs j c sg]; [|reflexivity|].
  - cbn [told_before]. intros V. specialize (W z V). destruct z, b; cbn [val]; now rewrite W.
  - destruct c; cbn [told_before]; try discriminate; intros V; apply andb_prop in V as [V J]; apply Nat.ltb_lt in J;
      (assert (M : map w zs = map w' zs) by (apply map_ext_in; intros z Z; apply W; rewrite forallb_forall in V; now apply V));
      cbn [val names with_names]; rewrite (build_ok k j), (build_ok n j) by lia; now apply f_equal.
Qed.
Theorem names_exist : exists N, defined (with_names S N) par l.
Proof.
  exists (build (List.length l)). intros k d E r t w.
  assert (K : (k < List.length l)%nat) by (apply nth_error_Some; now rewrite E).
  cbn [names with_names]. rewrite (build_ok _ k) by exact K. cbn [build]. rewrite Nat.eqb_refl, E.
  pose proof (ordered_at l 0 k d l_ok E) as O. cbn [Nat.add] in O.
  assert (V : forall r t, den (fun v => val_with (build k) v r t (world_of (spoken d) (map w (spoken d)))) (defined_by d) =
    den (fun v => val_with (build (List.length l)) v r t w) (defined_by d)).
  { intros r' t'. apply (within_ok (told_before (spoken d) k)); [|exact O]. intros v. apply same_values; [lia|].
    intros z Z. now apply world_of_ok. }
  unfold meant. now rewrite !V.
Qed.
End Existence.
